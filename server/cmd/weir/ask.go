package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir.dev/weir"
)

// askTimeout is how long ask waits for the service.
const askTimeout = 5 * time.Second

// question is what the user asks.
type question struct {
	addr, domain string
	hits         uint64
	json         bool
}

func newAskCommand() *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use:   "ask --domain DOMAIN KEY=VALUE…",
		Short: "Ask a running service one question, and charge it",
		Long: `Ask a running service whether a request with these entries, in this order, may go on.
The question is charged like a proxy's; with --hits 0 it only looks.

The exit status is 0 if the request may go on, 1 if it is over a limit, and 2 if there
was no answer.`,
		Example: "  weir ask --domain shop user=alice path=/cart",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := q.ask(cmd.Context(), cmd.OutOrStdout(), args)
			if errors.Is(err, errOverLimit) {
				cmd.SilenceErrors = true // it has been printed, as the answer that it is
				return exitError{1, err}
			}
			if err != nil {
				return exitError{2, err}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.addr, "addr", "127.0.0.1:8081", "the service's gRPC `HOST:PORT`")
	flags.StringVar(&q.domain, "domain", "", "the `DOMAIN` of the rules to ask")
	flags.Uint64Var(&q.hits, "hits", 1, "how many units to charge; 0 looks without charging")
	flags.BoolVar(&q.json, "json", false, "print the answer as protobuf JSON")
	return cmd
}

var errOverLimit = errors.New("over the limit")

func (q *question) ask(ctx context.Context, out io.Writer, args []string) error {
	request, err := q.request(args)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(q.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("--addr %q: %w", q.addr, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
	if err != nil {
		return fmt.Errorf("%s: %w", q.addr, err)
	}
	if q.json {
		fmt.Fprintln(out, protojson.Format(answer))
	} else {
		printAnswer(out, answer)
	}
	if answer.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		return errOverLimit
	}
	return nil
}

// request puts the arguments into a request of one descriptor. The error names
// everything wrong with them.
func (q *question) request(args []string) (*pb.RateLimitRequest, error) {
	var errs []error
	if q.domain == "" {
		errs = append(errs, errNoDomain)
	}
	entries, err := readEntries(args)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	descriptor := &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(q.hits)}
	for _, e := range entries {
		descriptor.Entries = append(descriptor.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	return &pb.RateLimitRequest{Domain: q.domain, Descriptors: []*common.RateLimitDescriptor{descriptor}}, nil
}

// printAnswer writes the answer for people: its code, and a line for each limit.
func printAnswer(out io.Writer, answer *pb.RateLimitResponse) {
	told := answer.GetDynamicMetadata().GetFields()
	for _, s := range answer.GetStatuses() {
		reset := s.GetDurationUntilReset().AsDuration()
		l := s.GetCurrentLimit()
		switch {
		case s.GetCode() == pb.RateLimitResponse_OVER_LIMIT:
			fmt.Fprintf(out, "over the limit: try again in %v (%s, %d left)\n", reset, limitText(l), s.GetLimitRemaining())
		case l == nil && told["source"].GetStringValue() == weir.FromPolicy.String():
			fmt.Fprintln(out, "allowed: what is left is not known")
		case l == nil:
			fmt.Fprintln(out, "allowed: no limit applies")
		default:
			fmt.Fprintf(out, "allowed: %d left of %s, as new in %v\n", s.GetLimitRemaining(), limitText(l), reset)
		}
	}
	if cause := told["cause"].GetStringValue(); cause != "" {
		fmt.Fprintf(out, "decided by the %s, for the store could not: %s\n", told["source"].GetStringValue(), cause)
	}
	if delay, ok := told["delay_seconds"]; ok {
		fmt.Fprintf(out, "start it in %v\n", time.Duration(delay.GetNumberValue()*float64(time.Second)))
	}
}

// limitText says a limit as people do: `5 per 30 seconds "burst"`.
func limitText(l *pb.RateLimitResponse_RateLimit) string {
	text := fmt.Sprint(l.GetRequestsPerUnit())
	if l.GetUnit() != pb.RateLimitResponse_RateLimit_UNKNOWN {
		unit := strings.ToLower(l.GetUnit().String())
		text += " per "
		if n := l.GetUnitMultiplier().GetValue(); n > 1 {
			text += fmt.Sprintf("%d %ss", n, unit)
		} else {
			text += unit
		}
	}
	if l.GetName() != "" {
		text += fmt.Sprintf(" %q", l.GetName())
	}
	return text
}
