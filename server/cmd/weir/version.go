package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print which weir this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuild()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "weir %s revision %s %s %s/%s\n", b.version, b.revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// build is what the Go tool wrote into the program.
type build struct{ version, revision string }

func readBuild() build {
	b := build{version: "unknown", revision: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.version = info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			b.revision += "+changes"
		}
	}
	return b
}
