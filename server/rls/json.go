package rls

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"weir.dev/weir/server/rules"
)

// ServeHTTP answers a RateLimitRequest in protobuf's JSON with a RateLimitResponse: with
// status 200 if it may go on and 429 if not. A request that makes no sense gets 400, one
// that is too long 413, and 503 says that nothing could decide; these have one line of
// text. In Compat all of them get 400. It does not look at the method.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessageBytes))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if objects(body) > maxObjects {
		s.refuse(w, r, fmt.Errorf("it has more than %d objects", maxObjects))
		return
	}
	var message pb.RateLimitRequest
	if err := protojson.Unmarshal(body, &message); err != nil {
		s.refuse(w, r, fmt.Errorf("%w: %.200s", errNotJSON, err.Error()))
		return
	}
	request, err := fromMessage(&message)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer, err := s.Decide(r.Context(), &request)
	switch {
	case err != nil && (s.opts.Compat != nil || errors.Is(err, ErrInvalid)):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	text, err := protojson.Marshal(answer.Message())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.OverLimit {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	w.Write(append(text, '\n')) // nobody is left to tell of an error
}

// maxObjects is the most objects of a body in JSON. Protobuf's reader takes microseconds
// for each, so a body of nothing else would keep a processor busy for seconds; it has no
// bound of its own.
const maxObjects = 20_000

// objects counts the braces that are not in a text.
func objects(json []byte) (n int) {
	for i, inText := 0, false; i < len(json); i++ {
		switch c := json[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case !inText && c == '{':
			n++
		}
	}
	return n
}

var errNotJSON = errors.New("the body is no RateLimitRequest in protobuf's JSON")

// refuse answers a body that is not even a request. What is wrong with its JSON is for its
// sender alone: it quotes the body, and no value of a client's belongs in the log.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, cause error) {
	err := fmt.Errorf("%w: %w", ErrInvalid, cause)
	if errors.Is(cause, errNotJSON) {
		s.noteFailure(r.Context(), fmt.Errorf("%w: %w", ErrInvalid, errNotJSON))
	} else {
		s.noteFailure(r.Context(), err)
	}
	code := http.StatusBadRequest
	if _, ok := errors.AsType[*http.MaxBytesError](cause); ok && s.opts.Compat == nil {
		code = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), code)
}

// fromMessage turns the generated type into a Request, within the same bounds as Decode.
func fromMessage(m *pb.RateLimitRequest) (Request, error) {
	r := Request{Domain: m.GetDomain(), Hits: m.GetHitsAddend()}
	if len(m.GetDescriptors()) > MaxDescriptors {
		return r, errDescriptors
	}
	for _, d := range m.GetDescriptors() {
		if len(d.GetEntries()) > MaxEntries {
			return r, errEntries
		}
		r.Descriptors = append(r.Descriptors, fromDescriptor(d))
	}
	return r, nil
}

func fromDescriptor(m *common.RateLimitDescriptor) Descriptor {
	d := Descriptor{Refund: m.GetIsNegativeHits()}
	for _, e := range m.GetEntries() {
		d.Entries = append(d.Entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	if l := m.GetLimit(); l != nil {
		d.Override = &Override{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: int32(l.GetUnit()), Multiplier: l.GetUnitMultiplier().GetValue()}
	}
	if h := m.GetHitsAddend(); h != nil {
		d.Hits = &h.Value
	}
	return d
}
