package httpretry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
)

// Reason is why a failed attempt may succeed when repeated.
type Reason string

// The reasons.
const (
	Dial           Reason = "dial"            // no connection was made: nothing was sent
	Connection     Reason = "connection"      // the connection broke, or ended without a response
	Timeout        Reason = "timeout"         // Options.AttemptTimeout, or a time limit of the RoundTripper below
	RequestTimeout Reason = "request_timeout" // 408
	TooEarly       Reason = "too_early"       // 425
	Limited        Reason = "limited"         // 429
	Unavailable    Reason = "unavailable"     // 503
	Gateway        Reason = "gateway"         // 502, 504
)

// reasonOf returns why a repetition may help, or "" if it would not: the answer is good, or bad for good, or the caller
// has left.
func reasonOf(ctx context.Context, resp *http.Response, err error) Reason {
	if err != nil {
		if ctx.Err() != nil || isLasting(err) {
			return ""
		}
		return reasonOfError(err)
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout:
		return RequestTimeout
	case http.StatusTooEarly:
		return TooEarly
	case http.StatusTooManyRequests:
		return Limited
	case http.StatusServiceUnavailable:
		return Unavailable
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return Gateway
	}
	return ""
}

// reasonOfError sorts the errors of a transport. HTTP/2 has types of its own that are not exported, so whatever is not
// known to last counts as a broken connection; only Dial matters for safety, and it is certain.
func reasonOfError(err error) Reason {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return Dial
	}
	if timed, ok := errors.AsType[net.Error](err); ok && timed.Timeout() {
		return Timeout
	}
	return Connection
}

// isLasting tells whether the same request will meet the same error: a bad certificate, a server that does not speak
// TLS, a name that does not exist, a scheme the transport does not know, a request cancelled below, ErrThrottled from a
// Transport below, a RoundTripper at fault, or a GetBody that fails.
func isLasting(err error) bool {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return true
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	return certificate || authority || notTLS || alert ||
		errors.Is(err, http.ErrSchemeMismatch) || errors.Is(err, http.ErrSkipAltProtocol) ||
		errors.Is(err, context.Canceled) || errors.Is(err, ErrThrottled) || errors.Is(err, errNoResponse) || errors.Is(err, errBodyGone)
}
