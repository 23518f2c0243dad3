package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client asks the API of a running service.
type Client struct {
	base  string
	token string
	http  *http.Client
}

const (
	clientTimeout = 10 * time.Second
	maxAnswer     = 64 << 20
)

// NewClient returns a client of the debug listener at a URL such as
// http://127.0.0.1:6070. The token may be "".
func NewClient(server, token string) (*Client, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the URL of the service is none: write that of its debug listener, such as http://127.0.0.1:6070")
	case u.User != nil:
		return nil, errors.New("the URL of the service has a user: leave it out; a token is in a file")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL of the service %q ends in a question: leave it out", server)
	}
	// A service that answers with a redirect is another one, which must not have the token.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{
		base:  strings.TrimSuffix(u.String(), "/") + "/admin/",
		token: token,
		http:  &http.Client{Timeout: clientTimeout, CheckRedirect: stay},
	}, nil
}

// Peek says which rule a descriptor matches, why, and what is there of its limits.
func (c *Client) Peek(ctx context.Context, q Question) (e Explanation, err error) {
	return e, c.ask(ctx, "peek", q, &e)
}

// Reset forgets what a descriptor has used of the limits of its rule.
func (c *Client) Reset(ctx context.Context, q Question) (r Reset, err error) {
	return r, c.ask(ctx, "reset", q, &r)
}

func (c *Client) ask(ctx context.Context, path string, q Question, answer any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode != http.StatusOK {
		var f failure
		if decoder.Decode(&f) != nil || f.Error == "" {
			return fmt.Errorf("%s answered %s: is it the debug listener of weir?", c.base, response.Status)
		}
		return errors.New(f.Error)
	}
	if err := decoder.Decode(answer); err != nil {
		return fmt.Errorf("%s answered what is not JSON: %w", c.base, err)
	}
	return nil
}
