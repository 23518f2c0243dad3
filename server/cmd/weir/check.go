package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"weir.dev/weir"
	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

const mergeDomainsUsage = "let several files be for one domain"

func newCheckCommand() *cobra.Command {
	var asJSON bool
	var n instances
	var opts rules.Options
	cmd := &cobra.Command{
		Use:   "check FILE|DIR…",
		Short: "Say what a configuration means, or everything that is wrong with it",
		Long: `Read configuration files, and directories of *.yaml and *.yml files, as the service would.

If they can be used, print each rule with the most that it lets pass in any window, and
exit with status 0. Otherwise print every fault, with its file, line and column and what
to write instead, and exit with status 1. Warnings do not change the status.

How many instances of the service share the limits is what --instances says, or
WEIR_INSTANCES, or the files. It decides what each serves while the store is away, and how
much more than a limit they may let pass where it has a lease.

With --upstream the verdict is that of envoyproxy/ratelimit: each file of a directory counts,
whatever its name; weir's own keys are faults; and a YAML key written twice or a second
document, of which that service silently loses one, is a warning.`,
		Example: "  weir check examples/quickstart/ratelimit.yaml\n  weir check --upstream --merge-domains --json /etc/ratelimit/config",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no rules: name one or more files, or directories of files")
			}
			if text, ok := os.LookupEnv("WEIR_INSTANCES"); ok && n == 0 {
				if err := n.Set(text); err != nil {
					return fmt.Errorf("WEIR_INSTANCES: %w", err)
				}
			}
			// The original, and so compat, reads each file of a directory, whatever its name.
			files, err := source.New(source.Options{AnyName: opts.Upstream}, args...).Read()
			if err != nil {
				return err
			}
			report := newCheckReport(opts, files, int(n))
			if asJSON {
				err = report.writeJSON(cmd.OutOrStdout())
			} else {
				err = report.writeText(cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if err != nil || report.OK {
				return err
			}
			return fmt.Errorf("%s in %s", plural(len(report.Faults), "fault"), plural(len(files), "file"))
		},
	}
	cmd.Flags().Var(&n, "instances", "how many instances of the service will share the limits")
	cmd.Flags().BoolVar(&opts.MergeDomains, "merge-domains", false, mergeDomainsUsage)
	cmd.Flags().BoolVar(&opts.Upstream, "upstream", false, "give the verdict of envoyproxy/ratelimit")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the rules, faults and warnings as JSON")
	return cmd
}

// checkReport is what check has to say.
type checkReport struct {
	OK       bool          `json:"ok"`
	Rules    []checkedRule `json:"rules"`
	Faults   []rules.Fault `json:"faults"`
	Warnings []rules.Fault `json:"warnings"` // of a configuration that can be used
}

// checkedRule is one rule. It has no limits if it is unlimited or a whitelist entry.
type checkedRule struct {
	Domain    string         `json:"domain"`
	Rule      string         `json:"rule"` // its path
	Unlimited bool           `json:"unlimited,omitempty"`
	Shadow    bool           `json:"shadow,omitempty"`
	Limits    []checkedLimit `json:"limits"`

	// SharedInCompat says that in compat the limit has the counters of the original, and
	// counts together with it.
	SharedInCompat bool `json:"shared_in_compat,omitempty"`
}

type checkedLimit struct {
	Name      string  `json:"name,omitempty"`
	Algorithm string  `json:"algorithm"`
	Units     int64   `json:"units"`
	Seconds   float64 `json:"window_seconds"`
	Burst     int64   `json:"burst,omitempty"` // of the algorithms that have one
	WorstCase int64   `json:"worst_case"`      // most units in any window of that length

	// OnStoreError is "local", "allow" or "deny", or missing: an error. Instances share the
	// limit by "local", and by a lease.
	OnStoreError string        `json:"on_store_error,omitempty"`
	Instances    int           `json:"instances,omitempty"`
	Lease        *checkedLease `json:"lease,omitempty"`

	Candidate *checkedLimit `json:"candidate,omitempty"` // compared with it, and never enforced

	limit *rules.Limit
}

// checkedLease is a limit's lease. It has no effect where a twentieth of the limit is less
// than a unit for each instance.
type checkedLease struct {
	Max    int64   `json:"max"`
	Refill float64 `json:"refill"`
	Expiry float64 `json:"expiry_seconds"`
	Effect bool    `json:"effect"`
	More   int64   `json:"more"` // most units beyond the worst case
}

func newCheckReport(opts rules.Options, files []rules.File, instances int) checkReport {
	report := checkReport{Rules: []checkedRule{}, Faults: []rules.Fault{}, Warnings: []rules.Fault{}}
	config, err := opts.Parse(files...)
	if err == nil && !opts.Upstream { // there limits have no instances
		err = config.CheckInstances(instances)
	}
	var faults rules.Faults
	if errors.As(err, &faults) {
		report.Faults = faults
		return report
	}
	report.OK = true
	report.Warnings = append(report.Warnings, config.Warnings...)
	for _, r := range config.Rules() {
		rule := checkedRule{Domain: r.Domain, Rule: r.Path, Unlimited: r.Unlimited, Shadow: r.Shadow, Limits: []checkedLimit{}, SharedInCompat: rls.CountedWithOriginal(r)}
		for i := range r.Limits {
			rule.Limits = append(rule.Limits, newCheckedLimit(&r.Limits[i], instances))
		}
		report.Rules = append(report.Rules, rule)
	}
	return report
}

func newCheckedLimit(l *rules.Limit, instances int) checkedLimit {
	c := checkedLimit{
		Name:      l.Name,
		Algorithm: l.Algorithm().String(),
		Units:     l.Units(),
		Seconds:   l.Period().Seconds(),
		WorstCase: l.WorstCase(),
		limit:     l,
	}
	if a := l.Algorithm(); a == weir.GCRA || a == weir.LeakyBucket {
		c.Burst = l.Capacity()
	}
	policy := l.Fallback(instances)
	if policy != rules.Unsaid {
		c.OnStoreError = policy.String()
	}
	leased := l.Lease != (rules.Lease{})
	if leased || policy == rules.Local {
		c.Instances = l.InstancesOf(instances)
	}
	if leased {
		more, effect := rls.LeaseBound(l, instances)
		c.Lease = &checkedLease{l.Lease.Max, l.Lease.Refill, l.Lease.Expiry.Seconds(), effect, more}
	}
	if l.Candidate != nil {
		candidate := newCheckedLimit(l.Candidate, 0)
		c.Candidate = &candidate
	}
	return c
}

func (c checkReport) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// writeText writes the rules to out, and faults and warnings to errs.
func (c checkReport) writeText(out, errs io.Writer) error {
	for _, f := range c.Faults {
		fmt.Fprintln(errs, f)
	}
	for _, f := range c.Warnings {
		fmt.Fprintf(errs, "%s:%d:%d: warning: %s\n", f.File, f.Line, f.Column, f.Message)
	}
	if !c.OK {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DOMAIN\tRULE\tLIMIT\tWORST CASE\tWITHOUT STORE")
	for _, r := range c.Rules {
		shadow := ""
		if r.Shadow {
			shadow = ", in shadow: never denies"
		}
		switch {
		case r.Unlimited:
			fmt.Fprintf(t, "%s\t%s\tunlimited\t\t\n", r.Domain, r.Rule)
		case len(r.Limits) == 0:
			fmt.Fprintf(t, "%s\t%s\tnone: allows and counts nothing\t\t\n", r.Domain, r.Rule)
		}
		for i, l := range r.Limits {
			domain, rule := r.Domain, r.Rule
			if i > 0 {
				domain, rule = "", "  and"
			}
			fmt.Fprintf(t, "%s\t%s\t%s%s\t%s\t%s\n", domain, rule, l, shadow, l.worst(), l.withoutStore())
			if c := l.Candidate; c != nil {
				fmt.Fprintf(t, "\t  candidate\t%s, only counted\t%s\t\n", c, c.worst())
			}
		}
	}
	return t.Flush()
}

// String says the limit for people.
func (l checkedLimit) String() string {
	s := l.limit.String()
	switch {
	case l.Units == 0 || l.Lease == nil:
	case l.Lease.Effect, l.Instances == 0:
		s += fmt.Sprintf(", lease %d", l.Lease.Max)
	default:
		s += fmt.Sprintf(", lease without effect: too little for %s", plural(l.Instances, "instance"))
	}
	return s
}

func (l checkedLimit) worst() string {
	if l.Units == 0 {
		return ""
	}
	s := fmt.Sprintf("%d in any %s", l.WorstCase, l.limit.Window())
	if l.Lease != nil && l.Lease.More > 0 {
		s += fmt.Sprintf(", and %d more by leases", l.Lease.More)
	}
	return s
}

// withoutStore says what the limit does when the store cannot decide.
func (l checkedLimit) withoutStore() string {
	switch {
	case l.Units == 0: // no store is asked
		return ""
	case l.OnStoreError == "":
		return "error"
	case l.OnStoreError == rules.Local.String():
		return fmt.Sprintf("1/%d in each instance", l.Instances)
	}
	return l.OnStoreError
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
