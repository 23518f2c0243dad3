package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir.dev/weir/server/admin"
	"weir.dev/weir/server/rules"
)

const (
	serverUsage      = "ask the service whose debug listener is at `URL`, such as http://127.0.0.1:6070"
	clientTokenUsage = "`FILE` with the token that the service wants, in place of " + tokenFileVariable
)

func newResetCommand() *cobra.Command {
	var service debugListener
	cmd := &cobra.Command{
		Use:   "reset --server URL DOMAIN KEY=VALUE…",
		Short: "Make a running service forget what a key has used",
		Long: `Make a running service forget what a descriptor with these entries, in this order, has
used of all limits of the rule that it matches, their candidates included: in the store and,
in the process that is asked, units taken ahead, remembered denials and what was counted
while the store was away. Other processes of the service forget theirs within a second, but
what they counted while the store was away.

weir explain --server says which rule that is, and what is left.`,
		Example: "  weir reset --server http://127.0.0.1:6070 shop user=alice",
		RunE: func(cmd *cobra.Command, args []string) error {
			return service.reset(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	cmd.Flags().StringVar(&service.url, "server", "", serverUsage)
	cmd.Flags().StringVar(&service.tokenFile, "admin-token-file", "", clientTokenUsage)
	return cmd
}

// debugListener is that of a running service, as the flags name it.
type debugListener struct{ url, tokenFile string }

func (l *debugListener) client() (*admin.Client, error) {
	path := l.tokenFile
	if path == "" {
		path = os.Getenv(tokenFileVariable)
	}
	token, err := readToken(path)
	if err != nil {
		return nil, fmt.Errorf("--admin-token-file, %s: %w", tokenFileVariable, err)
	}
	client, err := admin.NewClient(l.url, token)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return client, nil
}

func (l *debugListener) reset(ctx context.Context, out io.Writer, args []string) error {
	var errs []error
	if l.url == "" {
		errs = append(errs, errors.New("no service: write --server and the URL of its debug listener, such as http://127.0.0.1:6070"))
	}
	if len(args) == 0 || strings.Contains(args[0], "=") {
		return errors.Join(append(errs, errors.New("no domain: write one of the configuration's domains, and after it each KEY=VALUE"))...)
	}
	entries, err := readEntries(args[1:])
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	client, err := l.client()
	if err != nil {
		return err
	}
	done, err := client.Reset(ctx, newQuestion(args[0], entries))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Reset what this key has used of the rule %s: %s\n", done.Rule, strings.Join(done.Reset, ", "))
	return err
}

func newQuestion(domain string, entries []rules.Entry) admin.Question {
	q := admin.Question{Domain: domain}
	for _, e := range entries {
		q.Entries = append(q.Entries, admin.Entry(e))
	}
	return q
}

// explain writes what the service says of a question, for people.
func (l *debugListener) explain(ctx context.Context, out io.Writer, q admin.Question) error {
	client, err := l.client()
	if err != nil {
		return err
	}
	e, err := client.Peek(ctx, q)
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, s := range e.Steps {
		writeStep(&b, i, rules.Step{Entry: rules.Entry(s.Entry), How: s.How, Level: s.Level, Else: s.Else})
	}
	writeState(&b, e.Rule)
	_, err = io.WriteString(out, b.String())
	return err
}

// writeState writes what a key has of each limit of the rule.
func writeState(b *strings.Builder, r *admin.Rule) {
	if r == nil {
		writeMatch(b, nil)
		return
	}
	writeMatch(b, &match{r.Rule, len(r.Limits), r.Unlimited, r.Shadow})
	for _, l := range r.Limits {
		fmt.Fprintf(b, "   %s: %s\n", l.Limit, sayState(l.State))
		if l.Candidate != nil {
			fmt.Fprintf(b, "      candidate, only counted: %s: %s\n", l.Candidate.Limit, sayState(l.Candidate.State))
		}
	}
}

// sayState says what is left, for people.
func sayState(s *admin.State) string {
	seconds := func(n float64) time.Duration {
		return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
	}
	switch {
	case s == nil:
		return "the service does not say what is left"
	case s.Error != "" && s.Source == "":
		return "what is left is not known: " + s.Error
	}
	text := fmt.Sprintf("%d left", s.Remaining)
	switch {
	case s.Never:
		text += ", and denied whatever the time"
	case !s.Allowed:
		text += fmt.Sprintf(", and denied for %v", seconds(s.RetryAfter))
	}
	if s.ResetAfter > 0 {
		text += fmt.Sprintf("; as new in %v", seconds(s.ResetAfter))
	}
	if s.Error != "" {
		text += fmt.Sprintf(" (by the %s: %s)", s.Source, s.Error)
	}
	return text
}
