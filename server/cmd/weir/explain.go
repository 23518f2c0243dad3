package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// mostLevels is how many levels explain names where none matched.
const mostLevels = 10

func newExplainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain (--config FILE|DIR | --server URL) --domain DOMAIN KEY=VALUE…",
		Short: "Say which rule a request would match, and why",
		Long: `Match one descriptor, whose entries are given in order, as the service would, and print
what each entry leads to and the limit at the end.

With --config nothing is asked. With --server the running service says it of the rules that
are in force there, and what is left of each limit for this key. Nothing is charged.`,
		Example: `  weir explain --config examples/quickstart/ratelimit.yaml --domain shop user=alice
  weir explain --server http://127.0.0.1:6070 --domain shop user=alice`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.config, "config", nil, configUsage)
	flags.BoolVar(&o.mergeDomains, "merge-domains", false, mergeDomainsUsage)
	flags.StringVar(&o.service.url, "server", "", serverUsage)
	flags.StringVar(&o.service.tokenFile, "admin-token-file", "", clientTokenUsage)
	flags.StringVar(&o.domain, "domain", "", "the `DOMAIN` of the request")
	return cmd
}

type explainOptions struct {
	config       []string
	mergeDomains bool
	service      debugListener
	domain       string
}

func (o *explainOptions) run(ctx context.Context, out io.Writer, args []string) error {
	var errs []error
	switch {
	case len(o.config) == 0 && o.service.url == "":
		errs = append(errs, fmt.Errorf("%w, or --server and the URL of a running service", errNoConfig))
	case len(o.config) > 0 && o.service.url != "":
		errs = append(errs, errors.New("--config and --server are both here: leave one of them out"))
	}
	if o.domain == "" {
		errs = append(errs, errNoDomain)
	}
	entries, err := readEntries(args)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if o.service.url != "" {
		return o.service.explain(ctx, out, newQuestion(o.domain, entries))
	}
	files, err := source.Read(o.config...)
	if err != nil {
		return err
	}
	c, err := rules.Options{MergeDomains: o.mergeDomains}.Parse(files...)
	if err != nil {
		return err
	}
	if !c.Has(o.domain) {
		return fmt.Errorf("no rules for the domain %q, so its requests are not limited: the configuration has %q", o.domain, c.Domains())
	}
	return explain(out, c, o.domain, entries)
}

// readEntries reads arguments of the form KEY=VALUE. The error names every other one.
func readEntries(args []string) ([]rules.Entry, error) {
	if len(args) == 0 {
		return nil, errors.New("no entries: write at least one KEY=VALUE")
	}
	var entries []rules.Entry
	var errs []error
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			errs = append(errs, fmt.Errorf("the entry %q is not KEY=VALUE", arg))
		}
		entries = append(entries, rules.Entry{Key: key, Value: value})
	}
	return entries, errors.Join(errs...)
}

// explain writes how the entries match, for people.
func explain(out io.Writer, c *rules.Config, domain string, entries []rules.Entry) error {
	var b strings.Builder
	for i, s := range c.Explain(domain, entries) {
		writeStep(&b, i, s)
	}
	writeOutcome(&b, c.Match(domain, entries), entries)
	_, err := io.WriteString(out, b.String())
	return err
}

// writeStep writes what the entry of that index led to.
func writeStep(b *strings.Builder, index int, s rules.Step) {
	fmt.Fprintf(b, "%d. %q = %q: ", index+1, s.Entry.Key, s.Entry.Value)
	if s.How != rules.ByNothing {
		fmt.Fprintf(b, "%s, by %s\n", s.Level, s.How)
		return
	}
	switch n := len(s.Else); {
	case n == 0:
		b.WriteString("no match, there is no level below\n")
	case n > mostLevels:
		fmt.Fprintf(b, "no match among %s and %d more\n", strings.Join(s.Else[:mostLevels], ", "), n-mostLevels)
	default:
		fmt.Fprintf(b, "no match among %s\n", strings.Join(s.Else, ", "))
	}
}

// writeOutcome writes what a request that matched r, or nothing, gets.
func writeOutcome(b *strings.Builder, r *rules.Rule, entries []rules.Entry) {
	if r == nil {
		writeMatch(b, nil)
		return
	}
	writeMatch(b, &match{r.Path, len(r.Limits), r.Unlimited, r.Shadow})
	for i := range r.Limits {
		l := &r.Limits[i]
		c := newCheckedLimit(l, 0)
		fmt.Fprintf(b, "   %s", c)
		if c.Units > 0 {
			fmt.Fprintf(b, "; at most %s", c.worst())
		}
		fmt.Fprintf(b, "\n      counted as %s, for the key %s\n", l.StateName, r.Key(entries))
		if l.Candidate != nil {
			fmt.Fprintf(b, "      candidate, only counted: %s\n", l.Candidate)
		}
	}
}

// match is what explain says of a rule, be it a file's or a running service's.
type match struct {
	path              string
	limits            int
	unlimited, shadow bool
}

// writeMatch writes which rule limits a request, before the limits; or why none does, as
// where there is no rule, which is nil.
func writeMatch(b *strings.Builder, m *match) {
	switch {
	case m == nil:
		b.WriteString("Not limited: no rule is at the level of the last entry.\n")
	case m.unlimited:
		fmt.Fprintf(b, "Not limited: the rule %s is unlimited.\n", m.path)
	case m.limits == 0:
		fmt.Fprintf(b, "Not limited: the rule %s has no limit.\n", m.path)
	case m.shadow:
		fmt.Fprintf(b, "Limited by the rule %s (in shadow: never denies):\n", m.path)
	default:
		fmt.Fprintf(b, "Limited by the rule %s:\n", m.path)
	}
}
