// Package httpcheck answers gateways that ask by HTTP whether a request may go on: nginx
// (auth_request), Caddy (forward_auth), Traefik (forwardAuth), HAProxy, or any other.
//
// The gateway sends the headers of its client's request, and says in X-Forwarded-For,
// -Host, -Method and -Uri what else the request was. The rules' http_check makes
// descriptors of that, and the same service decides them that answers Envoy.
package httpcheck

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"weir.dev/weir/server/rls"
	"weir.dev/weir/server/rules"
)

// Handler answers checks: 200 if the request may go on, and the denied status of the
// rules' http_check, 429 if it has none, over a limit. Where nothing can decide it is the
// undecided status, 503 if there is none.
//
// Answers carry the limits as RateLimit-Policy and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-11), and denials Retry-After in seconds and a
// problem in JSON (RFC 9457). Any method will do. Nothing of the check's own URL is read,
// since some gateways append their client's query to it.
type Handler struct {
	service *rls.Service
	log     *slog.Logger
	told    atomic.Pointer[rules.HTTPCheck] // the log knows of a peer that this does not trust
}

// New returns a handler whose checks the service decides. It logs to log, or nowhere if
// that is nil.
func New(service *rls.Service, log *slog.Logger) *Handler {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Handler{service: service, log: log}
}

// ServeHTTP answers one check.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	config := h.service.Rules()
	if config == nil || config.HTTPCheck() == nil {
		undecided(w, http.StatusServiceUnavailable, "The rules have no http_check.")
		return
	}
	check := config.HTTPCheck()
	q := question{check: check, asked: r}
	request := q.request()
	if q.stranger && h.told.Swap(check) != check {
		h.log.Warn("a check came from an address that trusted_proxies does not have: it is taken for the client's own; others are not told", "address", r.RemoteAddr)
	}
	if len(request.Descriptors) == 0 {
		return // the request has nothing that limits could be about
	}
	answer, err := h.service.Decide(r.Context(), &request)
	if err != nil {
		// Why is in the log and the metrics; a gateway would tell it to its client.
		undecided(w, check.UndecidedStatus, "Nothing could decide about the request.")
		return
	}
	for _, header := range answer.Headers {
		w.Header()[header.Name] = []string{header.Value} // as it is written there: RateLimit
	}
	if answer.OverLimit {
		deny(w, check.DeniedStatus, answer)
	}
}
