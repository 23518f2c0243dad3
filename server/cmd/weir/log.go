package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"weir.dev/weir/server/settings"
)

// newLogger returns the log that the flags describe.
func newLogger(out io.Writer, level, format string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, opts)), nil
	case "json":
		opts.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr { return readable(a) }
		return slog.New(slog.NewJSONHandler(out, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: write text or json", format)
}

// newCompatLogger returns a log as the original's settings say.
func newCompatLogger(out io.Writer, set settings.Log) *slog.Logger {
	opts := &slog.HandlerOptions{Level: compatLevels[set.Level]}
	if !set.JSON {
		return slog.New(slog.NewTextHandler(out, opts))
	}
	opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if a = readable(a); len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			a.Key = "@timestamp"
		case slog.MessageKey:
			a.Key = "@message"
		case slog.LevelKey:
			a.Value = slog.StringValue(strings.Replace(strings.ToLower(a.Value.String()), "warn", "warning", 1))
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(out, opts))
}

// readable writes a duration as the text form of the log does: JSON has no unit for it.
func readable(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// compatLevels has the original's levels. Below error it has two for its own end, of which
// here is nothing to tell.
var compatLevels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
	"error": slog.LevelError, "fatal": slog.LevelError + 4, "panic": slog.LevelError + 4,
}
