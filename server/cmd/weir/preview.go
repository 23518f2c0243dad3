package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir.dev/weir/memstore"
	"weir.dev/weir/redisstore"
	"weir.dev/weir/server/preview"
	"weir.dev/weir/server/rules"
	"weir.dev/weir/server/source"
)

// previewOptions are the flags of weir preview.
type previewOptions struct {
	config       []string
	mergeDomains bool
	domain       string
	as           []string
	format       string
	store        string
	json         bool
}

// newPreviewCommand returns weir preview.
func newPreviewCommand() *cobra.Command {
	var o previewOptions
	cmd := &cobra.Command{
		Use:   "preview --config FILE|DIR --domain DOMAIN --as 'KEY={addr}'… LOG…",
		Short: "Say what rules would have done to the requests of an access log",
		Long: `Replay access logs through the rules, at the logs' own times, and say for each rule how
many requests and keys would have been allowed and denied, who would have been denied
most, and when.

Each request becomes one descriptor. Each --as makes one entry of it, in order, from
texts and the fields {addr} {user} {method} {path} {status} {bytes} {agent}.

Logs, plain or compressed by gzip, are read together and sorted by time. Lines that cannot
be read are skipped and counted. With --store the replay runs on that server, under names
of its own which it removes at the end; a log that is busier than the server is fast is
then less exact, since keys expire by the server's clock.`,
		Example: `  weir preview --config rules.yaml --domain site --as 'client={addr}' access.log access.log.1.gz
  weir preview --config rules.yaml --domain site --as 'method={method}' --as 'client={addr}' --json access.log`,
		RunE: func(cmd *cobra.Command, logs []string) error {
			return runPreview(cmd.Context(), o, logs, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.config, "config", nil, configUsage)
	flags.BoolVar(&o.mergeDomains, "merge-domains", false, mergeDomainsUsage)
	flags.StringVar(&o.domain, "domain", "", "the `DOMAIN` whose rules to replay")
	flags.StringArrayVar(&o.as, "as", nil, "an `ENTRY` of the descriptor, such as 'client={addr}'; may be repeated, in order")
	flags.StringVar(&o.format, "format", "", "`FORMAT` of the logs: common, combined or json (default: told apart by line)")
	flags.StringVar(&o.store, "store", "memory:", "`URL` of the store to replay on")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func runPreview(ctx context.Context, o previewOptions, paths []string, out, errOut io.Writer) error {
	config, log, err := o.prepare(paths)
	if err != nil {
		return err
	}
	if err := readLogs(ctx, log, paths, errOut); err != nil {
		return err
	}
	store, closeStore, err := openReplayStore(o.store)
	if err != nil {
		return err
	}
	defer closeStore()
	ctx, stop := untilSignal(ctx)
	defer stop()
	bar := newBar(errOut, int64(log.Len()), "replaying")
	report, err := preview.Replay{
		Config: config, Domain: o.domain, Store: store,
		Progress: func(requests int) { bar.Add(requests) },
	}.Run(ctx, log)
	bar.Clear()
	if err != nil {
		return err
	}
	for _, fault := range log.Faults {
		fmt.Fprintf(errOut, "skipped %v\n", fault)
	}
	if more := log.Skipped - len(log.Faults); more > 0 {
		fmt.Fprintf(errOut, "skipped %d more lines\n", more)
	}
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(report)
	}
	return report.WriteText(out)
}

// prepare reads what the flags name, and reports everything wrong with them at once.
func (o previewOptions) prepare(logs []string) (*rules.Config, *preview.Log, error) {
	var errs []error
	if len(logs) == 0 {
		errs = append(errs, errors.New("no log: name one or more access logs"))
	}
	if len(o.config) == 0 {
		errs = append(errs, errNoConfig)
	}
	format, err := preview.ParseFormat(o.format)
	if err != nil {
		errs = append(errs, fmt.Errorf("--format: %w", err))
	}
	templates := make([]preview.Template, len(o.as))
	for i, text := range o.as {
		if templates[i], err = preview.ParseTemplate(text); err != nil {
			errs = append(errs, fmt.Errorf("--as: %w", err))
		}
	}
	log, err := preview.NewLog(format, templates...)
	if err != nil {
		errs = append(errs, fmt.Errorf("--as: %w", err))
	}
	files, err := source.Read(o.config...)
	if err != nil {
		errs = append(errs, err)
	}
	config, err := rules.Options{MergeDomains: o.mergeDomains}.Parse(files...)
	switch {
	case err != nil:
		errs = append(errs, err)
	case o.domain == "":
		errs = append(errs, errNoDomain)
	case len(o.config) > 0 && !config.Has(o.domain):
		errs = append(errs, fmt.Errorf("no rules for --domain %q: the configuration has %q", o.domain, config.Domains()))
	}
	return config, log, errors.Join(errs...)
}

// readLogs reads the files, and shows how far it is on a terminal.
func readLogs(ctx context.Context, log *preview.Log, paths []string, errOut io.Writer) error {
	files := make([]*os.File, 0, len(paths))
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	size := int64(0)
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		files = append(files, f)
		if info, err := f.Stat(); err == nil {
			size += info.Size()
		}
	}
	bar := newBar(errOut, size, "reading")
	defer bar.Clear()
	for _, f := range files {
		if err := log.Read(f.Name(), untilDone{ctx, io.TeeReader(f, shown{bar})}); err != nil {
			return err
		}
	}
	return nil
}

// untilDone is a reader that ends with its context.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// replayBudget is how long one answer of a server may take in a replay, where no user
// waits for it but a question of unknown outcome spoils the rest.
const replayBudget = 5 * time.Second

// openReplayStore opens the store that a URL names, to replay on, and returns what closes
// it. Unless the URL says otherwise a store in memory is all but unbounded, since one
// that is full lets keys share counters, and a server has the replayBudget.
func openReplayStore(text string) (store preview.Store, closeStore func() error, err error) {
	u, err := parseStoreURL(text)
	if err != nil {
		return nil, nil, fmt.Errorf("--store: %w", err)
	}
	if u.scheme == "memory" {
		opts, err := u.memory()
		if err != nil {
			return nil, nil, fmt.Errorf("--store: %s: %w", u, err)
		}
		opts.MaxKeys = cmp.Or(opts.MaxKeys, 1<<30)
		store, err := memstore.New(opts)
		return store, func() error { return nil }, err
	}
	opts, err := u.redis()
	if err != nil {
		return nil, nil, fmt.Errorf("--store: %s: %w", u, err)
	}
	opts.Budget = cmp.Or(opts.Budget, replayBudget)
	redis, err := redisstore.New(opts)
	if err != nil {
		return nil, nil, fmt.Errorf("--store: %s: %w", u, err)
	}
	return redis, redis.Close, nil
}

// shown is a progress bar that takes more than its total. What is read of a pipe or of a log
// that grows is more than was known, which is no reason to stop.
type shown struct{ bar *progressbar.ProgressBar }

func (s shown) Write(p []byte) (int, error) {
	s.bar.Add(len(p))
	return len(p), nil
}

// newBar returns a progress bar, which shows itself only on a terminal. A total of 0 is one
// that is not known.
func newBar(w io.Writer, total int64, what string) *progressbar.ProgressBar {
	if total == 0 {
		total = -1
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.DefaultSilent(total)
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond),
	)
}
