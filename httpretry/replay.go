package httpretry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	maxBuffered = 64 << 10               // a request body without GetBody is held if its stated length is at most this
	maxDrained  = 64 << 10               // what is read of a response that is thrown away, so that its connection can be kept
	drainTime   = 250 * time.Millisecond // and for how long: a new connection is cheaper than a slow body
)

var (
	errNoResponse = errors.New("httpretry: the RoundTripper below returned neither a response nor an error")
	errBodyGone   = errors.New("reading the request body again")
)

// buffer reads a body that could not be had again, if its length is stated and small. A body of unknown length is left
// alone: it may be a stream whose writer waits for the response.
func (c *call) buffer() error {
	req := c.req
	if req.Body == nil || req.GetBody != nil || req.ContentLength <= 0 || req.ContentLength > maxBuffered || c.t.opts.Attempts == 1 {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, req.ContentLength+1)) // one more, so that net/http sees a wrong length
	if err != nil {
		return fmt.Errorf("httpretry: reading the request body: %w", err)
	}
	c.buffered = body
	return req.Body.Close()
}

// replayable tells whether the request may be sent again after a failure of this kind.
func (c *call) replayable(reason Reason, resp *http.Response) bool {
	req := c.req
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil && c.buffered == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	case http.MethodPut, http.MethodDelete:
		if c.t.opts.RetryPutDelete {
			return true
		}
	}
	// The same two headers, an empty list of values included, mark a request as replayable for net/http's own retries.
	if _, ok := req.Header["Idempotency-Key"]; ok {
		return true
	}
	if _, ok := req.Header["X-Idempotency-Key"]; ok {
		return true
	}
	refused := reason == Limited || reason == Unavailable && resp.Header.Get("Retry-After") != ""
	return reason == Dial || refused && c.t.opts.RetryRefused
}

// send makes one attempt. The first goes out as the caller's own request unless something must differ.
func (c *call) send() (*http.Response, error) {
	o := &c.t.opts
	if c.attempt == 1 && c.buffered == nil && o.AttemptTimeout == 0 {
		return c.t.roundTrip(c.req)
	}
	ctx, cancel := c.req.Context(), context.CancelFunc(nil)
	if c.attempt > 1 {
		ctx = context.WithValue(ctx, retriedKey{}, true)
	}
	if o.AttemptTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.AttemptTimeout)
	}
	req, err := c.copy(ctx)
	if err != nil {
		if cancel != nil {
			cancel()
		}
		return nil, err
	}
	resp, err := c.t.roundTrip(req)
	if cancel == nil {
		return resp, err
	}
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = cancelOnClose(resp.Body, cancel)
	return resp, nil
}

// roundTrip calls the RoundTripper below, and holds it to its contract: a response with a body, or an error.
func (t *Transport) roundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errNoResponse
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	return resp, nil
}

// copy is the request for this attempt.
func (c *call) copy(ctx context.Context) (*http.Request, error) {
	req := c.req.Clone(ctx)
	if held := c.buffered; held != nil { // not c itself, which would then be allocated for every request
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(held)), nil }
	}
	if c.attempt > 1 && c.t.opts.AttemptHeader != "" {
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set(c.t.opts.AttemptHeader, strconv.Itoa(c.attempt))
	}
	if req.GetBody == nil || c.attempt == 1 && c.buffered == nil {
		return req, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("httpretry: %w: %w", errBodyGone, err)
	}
	req.Body = body
	return req, nil
}

// discard reads the rest of a response that is thrown away, within bounds, and closes it.
func discard(resp *http.Response) {
	if resp == nil {
		return
	}
	late := time.AfterFunc(drainTime, func() { resp.Body.Close() })
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrained+1) // an error costs the connection, which the next attempt replaces
	late.Stop()
	resp.Body.Close()
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// cancelOnClose keeps an attempt's context alive until its body is closed. A body that can be written to (101 Switching
// Protocols) stays so.
func cancelOnClose(body io.ReadCloser, cancel context.CancelFunc) io.ReadCloser {
	read := cancelingBody{body, cancel}
	if w, ok := body.(io.Writer); ok {
		return struct {
			cancelingBody
			io.Writer
		}{read, w}
	}
	return read
}

type cancelingBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b cancelingBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}
