package httpretry

import (
	"net/http"
	"time"
)

// retryAfter reads Retry-After, whole seconds or a date in any of HTTP's three forms (RFC 9110, section 10.2.3). A date is
// taken from the response's own Date where there is one, so that a wrong clock on either side does not matter. There is no
// hint (false) when the field is absent, malformed, zero or in the past: the usual backoff then applies, because a client
// that believes a wait of 0 hammers the server.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	lines := h["Retry-After"]
	if len(lines) != 1 {
		return 0, false
	}
	if isDigits(lines[0]) {
		d := seconds(lines[0])
		return d, d > 0
	}
	at, err := http.ParseTime(lines[0])
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	d := min(at.Sub(now), forever)
	return d, d > 0
}

// forever is longer than any wait that is believed, and far from overflow when a spread is added.
const forever = 100 * 365 * 24 * time.Hour

// seconds is digits as a duration, at most forever however many there are.
func seconds(digits string) time.Duration {
	var n time.Duration
	for i := range len(digits) {
		n = n*10 + time.Duration(digits[i]-'0')
		if n >= forever/time.Second {
			return forever
		}
	}
	return n * time.Second
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
