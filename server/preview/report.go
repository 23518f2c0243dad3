package preview

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
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
	t := newTable("RULE", "LIMIT", "ALLOWED", "DENIED", "", "KEYS", "KEYS DENIED", "")
	for _, rule := range r.Rules {
		asked := rule.Allowed + rule.Denied
		t.AppendRow(table.Row{
			printable(rule.Rule), rule.Limit,
			rule.Allowed, rule.Denied, percent(rule.Denied, asked), rule.Keys, rule.KeysDenied, rule.remark(),
		})
	}
	b.WriteString(t.Render() + "\n")
}

func (r *RuleReport) remark() string {
	switch {
	case r.Allowed+r.Denied == 0:
		return "matched no request"
	case r.Shadow:
		return "in shadow: denies nobody yet"
	}
	return ""
}

// writeDenials says when and whom the rule denies most.
func (r *RuleReport) writeDenials(b *strings.Builder) {
	if r.Denied == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: worst minute %s UTC with %s; denied most:\n",
		printable(r.Rule), r.WorstMinute.Format(clock), count(r.WorstDenied, "denial"))
	t := newTable()
	for _, o := range r.Top {
		t.AppendRow(table.Row{"", o.Denied, printable(o.Key)})
	}
	if more := r.KeysDenied - len(r.Top); more > 0 {
		t.AppendRow(table.Row{"", r.Denied - r.topDenied(), count(more, "more key")})
	}
	b.WriteString(t.Render() + "\n")
}

func (r *RuleReport) topDenied() (sum int) {
	for _, o := range r.Top {
		sum += o.Denied
	}
	return sum
}

// newTable returns a table of columns apart by two spaces, numbers to the right.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Box:     table.BoxStyle{PaddingRight: "  "},
		Options: table.OptionsNoBordersAndSeparators,
	})
	t.SuppressTrailingSpaces()
	if len(header) > 0 {
		t.AppendHeader(header)
	}
	return t
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
