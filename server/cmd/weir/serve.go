package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir.dev/weir/server/settings"
)

// serveOptions is how the service runs: what the flags of serve say, or in compat the
// settings of envoyproxy/ratelimit.
type serveOptions struct {
	compat              *settings.Settings // nil: weir's own mode
	config              []string
	xds                 string // URL of the management server that has the rules instead
	mergeDomains        bool
	adminTokenFile      string
	datadogTags         map[string]string // on what dogstatsd is told, in compat
	store               string
	storeBudget         time.Duration
	instances           instances
	grpc, http, debug   string // HOST:PORT, or unix:PATH
	grpcTLS             tlsFiles
	grpcAge, ageGrace   time.Duration // of connections; 0: for ever
	headers             headerForm
	drainWait           time.Duration // between the news that the service stops and its end
	logLevel, logFormat string
}

func newServeCommand() *cobra.Command {
	var opts serveOptions
	var compat bool
	cmd := &cobra.Command{
		Use:     "serve --config FILE|DIR | --xds URL",
		Short:   "Run the rate limit service",
		Long:    serveUsage,
		Example: "  weir serve --config limits.yaml\n  weir serve --config /etc/weir --store redis://127.0.0.1:6379",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setFromEnvironment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			if compat {
				return serveCompat(cmd.Context(), cmd.ErrOrStderr(), os.LookupEnv)
			}
			log, err := newLogger(cmd.ErrOrStderr(), opts.logLevel, opts.logFormat)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), opts, log)
		},
	}
	cmd.Flags().BoolVar(&compat, "compat", false, "behave as envoyproxy/ratelimit, as its environment says; see above")
	opts.addFlags(cmd.Flags())
	return cmd
}

// serve runs the service until ctx ends or a signal comes.
func serve(ctx context.Context, opts serveOptions, log *slog.Logger) error {
	s, err := newServer(opts, log)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return s.run(ctx)
}

const serveUsage = `Run the rate limit service until SIGTERM or SIGINT; then turn health red, go on answering
for --drain-wait, and finish the requests under way. A second signal ends it at once.

gRPC:  envoy.service.ratelimit.v3.RateLimitService, grpc.health.v1.Health
HTTP:  POST /json, /check for gateways, GET /healthcheck, GET /metrics
debug: GET /rlconfig, GET /debug/pprof/, /admin/ (docs/admin.md)

Each flag can be given as an environment variable instead: --store as WEIR_STORE,
--log-level as WEIR_LOG_LEVEL. A password is safer there, for other users of the machine
can read command lines. Several paths in WEIR_CONFIG are separated like those in PATH.

What a limit does while the store is away is on_store_error in the rules: local serves its
share of the limit from memory, for which --instances or the rules' instances say how many
instances of the service there are; allow and deny need no number. Where the rules do not
say, it is local if the number is known, and else the answer is an error (UNAVAILABLE), on
which the proxy decides. Proxies get their answer before their timeout, whatever the store
does.

With --compat, or started under the name ratelimit, weir behaves as envoyproxy/ratelimit:
that service's environment (PORT, REDIS_URL, RUNTIME_ROOT and so on) says everything, with
its defaults, and no flag but --compat counts; WEIR_INSTANCES and WEIR_ADMIN_TOKEN_FILE do.
Without it that environment is not read. docs/migrate.md has the differences.

Changed files are read again by themselves, and at SIGHUP. Rules with faults are logged and
leave those before in force (docs/reload.md).

Stores:
` + storeUsage + `

Management servers:
` + xdsURLUsage

func (o *serveOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.config, "config", nil, configUsage)
	flags.StringVar(&o.xds, "xds", "", xdsUsage)
	flags.BoolVar(&o.mergeDomains, "merge-domains", false, mergeDomainsUsage)
	flags.StringVar(&o.store, "store", "memory:", "where counters are kept, a `URL`: see above")
	flags.DurationVar(&o.storeBudget, "store-budget", 0, "longest `TIME` that a question waits for the store's network (default 50ms)")
	flags.Var(&o.instances, "instances", "how many instances of the service share the limits, in place of what the rules say")
	flags.StringVar(&o.grpc, "grpc", ":8081", "`ADDRESS` for gRPC: HOST:PORT, or unix:PATH")
	flags.StringVar(&o.http, "http", ":8080", "`ADDRESS` for HTTP")
	flags.StringVar(&o.debug, "debug", "127.0.0.1:6070", "`ADDRESS` for debugging; it is for operators alone")
	flags.StringVar(&o.adminTokenFile, "admin-token-file", "", tokenFileUsage)
	flags.StringVar(&o.grpcTLS.cert, "grpc-tls-cert", "", "`FILE` with the certificate for gRPC; without it gRPC is in plain text")
	flags.StringVar(&o.grpcTLS.key, "grpc-tls-key", "", "`FILE` with its key; both are read again when they have changed")
	flags.StringVar(&o.grpcTLS.clientCA, "grpc-client-ca", "", "`FILE` with the certificates that must have signed those of gRPC's clients")
	flags.StringVar(&o.grpcTLS.clientSAN, "grpc-client-name", "", "`NAME` that clients' certificates must have, a DNS name or an address (default any)")
	flags.Var(&o.headers, "response-headers", "headers that answers carry: `FORM` draft-11 (RateLimit-Policy and RateLimit, Retry-After on denials) or counts (RateLimit-Limit, -Remaining and -Reset)")
	flags.DurationVar(&o.drainWait, "drain-wait", 3*time.Second, "`TIME` to go on answering after SIGTERM, health being red: longer than proxies take to see that")
	flags.StringVar(&o.logLevel, "log-level", "info", "least `LEVEL` to log: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
}

// setFromEnvironment sets each flag that the command line does not have from its
// variable, if there is one. In compat it sets none: then the original's environment says
// everything, and with it a flag would be one master too many.
func setFromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	if text, ok := lookup("WEIR_COMPAT"); ok && !flags.Changed("compat") {
		if err := flags.Set("compat", text); err != nil {
			return fmt.Errorf("WEIR_COMPAT: %w", err)
		}
	}
	if compat, _ := flags.GetBool("compat"); compat {
		return onlyCompat(flags)
	}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		text, ok := lookup(name)
		if !ok || f.Changed {
			return
		}
		values := []string{text}
		if _, list := f.Value.(pflag.SliceValue); list {
			values = filepath.SplitList(text)
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
	})
	return errors.Join(errs...)
}
