// Command weir is the rate limit service and its tools.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

// newRootCommand returns the command line, every command with its flags.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate limiter for many machines: the service and its tools",
		SilenceUsage:  true,
		SilenceErrors: false,
	}
	root.AddCommand(
	// each command is made in the file of its name
	)
	return root
}
