package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Access says who may ask the debug listener.
type Access struct {
	// Local reports whether only this machine reaches the listener: it is on a loopback
	// address or a unix socket. Elsewhere questions about keys and changes need the token.
	Local func() bool
	// Token must come with each of them: "Authorization: Bearer TOKEN". "" is none; then
	// there are none but on a local listener.
	Token string
}

// GuardHost lets h answer, on a local listener, only requests that name this machine. A
// page in an operator's browser, whose own name was made to mean a loopback address, is
// known by that name.
func (a Access) GuardHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.Local() && !isSocket(r) && !namesLoopback(r.Host) {
			refuse(w, http.StatusForbidden, "the host %.80q is not a name of this listener: ask it by its address, or as localhost", r.Host)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// guard lets h answer only what its operator asks, and no page in a browser.
func (a Access) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
			refuse(w, http.StatusForbidden, "this comes from a page in a browser: ask with weir or curl")
		case a.Token == "" && !a.Local():
			refuse(w, http.StatusForbidden, "the debug listener is not on a loopback address, where this needs a token: start the service with --admin-token-file, or --debug 127.0.0.1:6070")
		case a.Token != "" && !a.authorized(r):
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer TOKEN")
		case err != nil || mediaType != "application/json":
			refuse(w, http.StatusUnsupportedMediaType, "the content type is %.80q: send application/json", r.Header.Get("Content-Type"))
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// authorized compares in a time that tells nothing of the token, not even its length.
func (a Access) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(a.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// isSocket reports whether a request came by a unix socket, which no browser reaches.
func isSocket(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// namesLoopback reports whether host, with or without a port, can mean nothing but this
// machine. A request without a host is none of a browser's.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "" || strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// IsLocal reports whether only this machine reaches a listener of that address.
func IsLocal(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// refuse answers with an error, as JSON.
func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	writeJSON(w, code, failure{fmt.Sprintf(format, args...)})
}
