package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"

	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/settings"
)

// originalName is the name of envoyproxy/ratelimit's program. Started under it, weir
// behaves as that service.
const originalName = "ratelimit"

// arguments are the command line's, after the program's name.
func arguments(line []string) []string {
	if len(line) > 0 && filepath.Base(line[0]) == originalName {
		return append([]string{"serve", "--compat"}, line[1:]...)
	}
	return line[min(1, len(line)):]
}

// onlyCompat returns an error if the command line has flags beside --compat.
func onlyCompat(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "compat" {
			errs = append(errs, fmt.Errorf("--%s: with --compat, or under the name %s, the environment of envoyproxy/ratelimit says everything: leave it out", f.Name, originalName))
		}
	})
	return errors.Join(errs...)
}

// serveCompat runs the service as the original's environment says.
func serveCompat(ctx context.Context, out io.Writer, lookup func(string) (string, bool)) error {
	set, notes, err := settings.Load(lookup)
	if err != nil {
		return fmt.Errorf("the environment has faults:\n%w", err)
	}
	log := newCompatLogger(out, set.Log)
	for _, n := range notes {
		log.Warn("a setting has no effect", "setting", n.Name, "why", n.Why)
	}
	opts := compatOptions(&set)
	if text, ok := lookup("WEIR_INSTANCES"); ok {
		if err := opts.instances.Set(text); err != nil {
			return fmt.Errorf("WEIR_INSTANCES: %w", err)
		}
	}
	opts.adminTokenFile, _ = lookup(tokenFileVariable)
	opts.datadogTags = datadogTags(lookup)
	return serve(ctx, opts, log)
}

// compatOptions translates the settings; those of Redis are in compat still.
func compatOptions(set *settings.Settings) serveOptions {
	at := func(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	opts := serveOptions{
		compat:   set,
		config:   []string{filepath.Join(set.Config.Root, set.Config.Subdirectory, set.Config.AppDirectory)},
		grpc:     at(set.Listen.GRPCHost, set.Listen.GRPCPort),
		http:     at(set.Listen.Host, set.Listen.Port),
		debug:    at(set.Listen.DebugHost, set.Listen.DebugPort),
		grpcAge:  set.GRPC.MaxAge,
		ageGrace: set.GRPC.MaxAgeGrace,
	}
	if set.Listen.UDS != "" {
		opts.grpc = unixPrefix + set.Listen.UDS
	}
	if set.GRPC.UseTLS {
		opts.grpcTLS = tlsFiles{cert: set.GRPC.Cert, key: set.GRPC.Key, clientCA: set.GRPC.ClientCA, clientSAN: set.GRPC.ClientSAN}
	}
	return opts
}

// listenerNames are what says where each listener is.
type listenerNames struct{ grpc, http, debug string }

func (o *serveOptions) listenerNames() listenerNames {
	switch {
	case o.compat == nil:
		return listenerNames{grpc: "--grpc", http: "--http", debug: "--debug"}
	case o.compat.Listen.UDS != "":
		return listenerNames{grpc: "GRPC_UDS", http: "HOST and PORT", debug: "DEBUG_HOST and DEBUG_PORT"}
	}
	return listenerNames{grpc: "GRPC_HOST and GRPC_PORT", http: "HOST and PORT", debug: "DEBUG_HOST and DEBUG_PORT"}
}

// compatAnswers makes the service answer as the original does with these settings.
func (s *server) compatAnswers(opts *rls.Options) {
	set := s.opts.compat
	opts.Compat = &rls.Compat{Counters: s.store.counters}
	opts.Stats = s.counts
	opts.NearLimitRatio = max(set.Limiter.NearLimitRatio, math.SmallestNonzeroFloat32) // 0 would be the default
	opts.Shadow = set.Limiter.Shadow
	opts.Quota = set.Limiter.Quota
	opts.Metadata = set.Limiter.DynamicMetadata
	opts.Headers = rls.Headers{
		Counts:        set.Headers.Enabled,
		LimitName:     set.Headers.Limit,
		RemainingName: set.Headers.Remaining,
		ResetName:     set.Headers.Reset,
	}
}
