// Command weir is the rate limit service and its tools.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	root := newRootCommand()
	root.SetArgs(arguments(os.Args))
	if err := root.ExecuteContext(context.Background()); err != nil {
		status := 1
		if exit, ok := errors.AsType[exitError](err); ok {
			status = exit.status
		}
		os.Exit(status)
	}
}

// untilSignal returns a context that ends at SIGINT or SIGTERM, for what must then clean
// up. Anywhere else a signal ends the process as usual: also one that waits for a file,
// such as a pipe that nobody writes, and the second signal while one cleans up.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// exitError is an error with an exit status of its own; others exit with 1.
type exitError struct {
	status int
	error
}

func (e exitError) Unwrap() error { return e.error }

// newRootCommand returns the command line, every command with its flags.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:          "weir",
		Short:        "A rate limiter for many machines: the service and its tools",
		SilenceUsage: true,
	}
	root.AddCommand(
		// each command is made in the file of its name
		newServeCommand(),
		newAskCommand(),
		newCheckCommand(),
		newExplainCommand(),
		newPreviewCommand(),
		newResetCommand(),
		newVerifyCommand(),
		newVersionCommand(),
	)
	return root
}

// What several commands say of a flag, and of its absence.
const configUsage = "`FILE` of rules, or directory of such files; may be repeated"

var (
	errNoConfig = errors.New("no rules: write --config and a file or a directory")
	errNoDomain = errors.New("no domain: write --domain and one of the configuration's domains")
)
