package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"weir.dev/weir"
	"weir.dev/weir/internal/cases"
	"weir.dev/weir/server/preview"
)

// newVerifyCommand returns weir verify.
func newVerifyCommand() *cobra.Command {
	var storeURL string
	cmd := &cobra.Command{
		Use:   "verify [--store URL] CASES.json…",
		Short: "Prove on a store that every algorithm decides exactly",
		Long: `Replay cases, at their own times, on a store: questions whose answers were computed in
rational arithmetic. Print the first difference of each case that fails, and at the end
"N passed, N failed"; exit with status 1 if any failed. Each case runs under a name of its
own, which is removed.`,
		Example: `  weir verify storetest/testdata/*.json
  weir verify --store redis://127.0.0.1:6379 storetest/testdata/*.json`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			return runVerify(cmd.Context(), storeURL, paths, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&storeURL, "store", "memory:", "`URL` of the store to try")
	return cmd
}

func runVerify(ctx context.Context, storeURL string, paths []string, out io.Writer) error {
	all, err := readCases(paths)
	if err != nil {
		return err
	}
	store, closeStore, err := openReplayStore(storeURL)
	if err != nil {
		return err
	}
	defer closeStore()
	ctx, stop := untilSignal(ctx)
	defer stop()
	failed := 0
	for _, c := range all {
		difference := verifyCase(ctx, store, c)
		if err := ctx.Err(); err != nil {
			return err
		}
		if difference != nil {
			failed++
			fmt.Fprintf(out, "%s: %v\n", c.Name, difference)
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", len(all)-failed, failed)
	if failed > 0 {
		return errors.New("the store does not decide as the cases say")
	}
	return nil
}

// readCases reads every file before the store is asked anything.
func readCases(paths []string) ([]cases.Case, error) {
	if len(paths) == 0 {
		return nil, errors.New("no cases: name one or more JSON files of cases")
	}
	var all []cases.Case
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		read, err := cases.Read(f)
		f.Close()
		if err == nil && len(read) == 0 {
			err = errors.New("holds no case")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, read...)
	}
	return all, nil
}

// verifyCase returns the first step at which the store's answer is another than the
// case's, or nil.
func verifyCase(ctx context.Context, store preview.Store, c cases.Case) (difference error) {
	name, key := "verify."+rand.Text(), weir.Text("case")
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := store.Forget(ctx, name, key); err != nil && difference == nil {
			difference = fmt.Errorf("the key cannot be removed: %w", err)
		}
	}()
	var decision [1]weir.Decision
	for i, step := range c.Steps {
		ask := weir.Ask{Name: name, Key: key, Limit: c.Limit, Cost: step.Cost}
		err := store.TakeAt(ctx, step.AtMicros, []weir.Ask{ask}, decision[:])
		if err == nil {
			err = decision[0].Cause
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if got := cases.AnswerOf(decision[0]); !step.Want.Agrees(got) {
			return fmt.Errorf("step %d, a cost of %d at %d µs:\n  got  %s\n  want %s", i, step.Cost, step.AtMicros, describe(got), describe(step.Want))
		}
	}
	return nil
}

// describe writes an answer in the words of the cases.
func describe(a cases.Answer) string {
	return fmt.Sprintf("allowed %t, remaining %d, retry_after_us %d, reset_after_us %d, delay_us %d",
		a.Allowed, a.Remaining, a.RetryAfter, a.ResetAfter, a.Delay)
}
