package preview

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// topOffenders is how many of a rule's keys a report names.
const topOffenders = 10

// Report is what a replay found. Its JSON is for programs, WriteText for people.
type Report struct {
	Requests int          `json:"requests"` // replayed
	Skipped  int          `json:"skipped"`  // lines that could not be read
	Rules    []RuleReport `json:"rules"`    // of the domain, in the order of the files

	Unmatched   int       `json:"-"` // requests that no rule matched, which pass
	First, Last time.Time `json:"-"` // when the requests were
}

// RuleReport is what one rule would have done. What a rule in shadow would deny counts as
// denied, for that is what the preview is for.
type RuleReport struct {
	Domain     string     `json:"domain"`
	Rule       string     `json:"rule"`      // its path in the configuration
	Algorithm  string     `json:"algorithm"` // "+" joins those of several limits; "unlimited" for none
	Allowed    int        `json:"allowed"`   // requests
	Denied     int        `json:"denied"`
	Keys       int        `json:"keys"`        // that asked
	KeysDenied int        `json:"keys_denied"` // at least once
	Top        []Offender `json:"top"`         // the keys denied most often, at most 10

	Limit       string    `json:"-"`
	Shadow      bool      `json:"-"`
	WorstMinute time.Time `json:"-"` // the first of those with the most denials; zero without any
	WorstDenied int       `json:"-"` // denials in it
}

// Offender is a key and how often it was denied.
type Offender struct {
	Key    string `json:"key"`
	Denied int    `json:"denied"`
}

const clock = "2006-01-02 15:04"

// WriteText writes the report for people: a table of the rules, then each rule's worst
// minute and most denied keys. All times are UTC.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s to %s UTC", count(r.Requests, "request"), r.First.Format(clock), r.Last.Format(clock))
	if r.Skipped > 0 {
		fmt.Fprintf(&b, "; %s skipped", count(r.Skipped, "unreadable line"))
	}
	b.WriteString("\n\n")
	r.writeTable(&b)
	if r.Unmatched > 0 {
		fmt.Fprintf(&b, "\n%s matched no rule and would have passed.\n", count(r.Unmatched, "request"))
	}
	for _, rule := range r.Rules {
		rule.writeDenials(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTable writes a line for each rule.
func (r *Report) writeTable(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	rows := [][]string{{"DENIED", "", "ALLOWED", "KEYS DENIED", "OF"}}
	for _, rule := range r.Rules {
		rows = append(rows, []string{
			strconv.Itoa(rule.Denied), percent(rule.Denied, rule.Allowed+rule.Denied),
			strconv.Itoa(rule.Allowed), strconv.Itoa(rule.KeysDenied), strconv.Itoa(rule.Keys),
		})
	}
	for i, row := range rows {
		label := "  RULE"
		if i > 0 {
			label = "  " + r.Rules[i-1].label()
		}
		fmt.Fprintf(t, "%s\t%s\n", strings.Join(row, "\t"), label)
	}
	t.Flush() // a strings.Builder takes everything
}

// label names the rule and says its limit.
func (r *RuleReport) label() string {
	s := printable(r.Rule) + ": " + r.Limit
	switch {
	case r.Allowed+r.Denied == 0:
		s += " (matched no request)"
	case r.Shadow:
		s += " (shadow: denies nobody yet)"
	}
	return s
}

// writeDenials says when and whom the rule denies most.
func (r *RuleReport) writeDenials(b *strings.Builder) {
	if r.Denied == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", printable(r.Rule))
	fmt.Fprintf(b, "  worst minute   %s UTC, %d denied\n", r.WorstMinute.Format(clock), r.WorstDenied)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for i, o := range r.Top {
		label := ""
		if i == 0 {
			label = "most denied"
		}
		fmt.Fprintf(t, "  %s\t  %s\t%d\n", cmp.Or(label, strings.Repeat(" ", len("worst minute"))), printable(o.Key), o.Denied)
	}
	t.Flush()
	if more := r.KeysDenied - len(r.Top); more > 0 {
		fmt.Fprintf(b, "%17sand %s\n", "", count(more, "more key"))
	}
}

// shownKey is how much of a key or of a rule's path a line has room for, in bytes.
const shownKey = 64

// printable makes text of a log safe for a terminal, and short: what is not plain is
// quoted.
func printable(s string) string {
	cut := s
	if len(cut) > shownKey {
		cut = cut[:shownKey]
		for !utf8.ValidString(cut) && len(cut) > shownKey-utf8.UTFMax && utf8.ValidString(s) {
			cut = cut[:len(cut)-1]
		}
	}
	if quoted := strconv.Quote(cut); quoted != `"`+cut+`"` {
		cut = quoted
	}
	if len(s) > shownKey {
		cut += "..."
	}
	return cut
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// percent returns a share of the whole that is never rounded to none or to all.
func percent(part, whole int) string {
	switch share := 100 * float64(part) / float64(max(whole, 1)); {
	case part == 0:
		return "0%"
	case part == whole:
		return "100%"
	case share < 0.1:
		return "<0.1%"
	case share > 99.9:
		return ">99.9%"
	default:
		return fmt.Sprintf("%.1f%%", share)
	}
}
