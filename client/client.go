// Package client submits, changes and follows the jobs of a cluster over the HTTP of a gateway
// (docs/http.md). Its types are those of the events and of the views that the command line prints.
//
//	c, err := client.New(client.Options{})
//	id, err := c.Submit(ctx, spec.Job{Name: "mnist", Command: []string{"python3", "train.py"}, Workers: spec.Workers{Min: 2, Max: 4}})
//	for e, err := range c.Events(ctx, client.EventsOptions{Job: id}) { ... }
//	job, err := c.Wait(ctx, id)
//
// Errors have the codes of package errcode, and the findings of a refused job: errcode.Of,
// errcode.FieldErrorsOf.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
)

// Options says which gateway a client asks. The zero value is the gateway that this user runs on
// this machine.
type Options struct {
	URL   string       // empty = REGROUP_GATEWAY_URL, or that of the gateway of StateDir
	Token string       // empty = REGROUP_GATEWAY_TOKEN, or that of the gateway of StateDir
	HTTP  *http.Client // nil = http.DefaultClient; without a time-out, because streams have no end

	// StateDir is the state folder in which a gateway has left its address: empty =
	// REGROUP_STATE_DIR, or that of the command line.
	StateDir string

	// Patience is for how long a request is repeated while no gateway can be reached, or one has
	// no broker. 0 = 10 s, less than 0 = not at all.
	Patience time.Duration
}

// Client asks one gateway. It may be used from several goroutines.
type Client struct {
	url, token string
	http       *http.Client
	patience   time.Duration
}

// New returns a client. It connects with the first request.
func New(o Options) (*Client, error) {
	c := &Client{
		url: cmp.Or(o.URL, os.Getenv("REGROUP_GATEWAY_URL")), token: cmp.Or(o.Token, os.Getenv("REGROUP_GATEWAY_TOKEN")),
		http: cmp.Or(o.HTTP, http.DefaultClient), patience: max(cmp.Or(o.Patience, 10*time.Second), 0),
	}
	if c.url == "" {
		local, err := Find(o.StateDir)
		if err != nil {
			return nil, err
		}
		c.url, c.token = local.URL, cmp.Or(c.token, local.Token)
	}
	u, err := url.Parse(c.url)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errcode.Errorf(errcode.Invalid, "URL %q: write http://host:port or https://host:port of a gateway", c.url)
	}
	c.url = strings.TrimSuffix(c.url, "/")
	if c.token == "" {
		return nil, errcode.Errorf(errcode.Invalid, "no token for %s: set Token, or REGROUP_GATEWAY_TOKEN", c.url)
	}
	return c, nil
}

// request is what is sent; a body is sent again when the request is.
type request struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         []byte
}

// send makes one request. An answer that is an error becomes one, with the code of the gateway.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	address := c.url + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "%s %s: %w", r.method, r.path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	res, err := c.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, errcode.Errorf(errcode.Cancelled, "%s %s: %w", r.method, r.path, context.Cause(ctx))
	case err != nil:
		return nil, errcode.Errorf(errcode.Unavailable, "the gateway does not answer: %w", err)
	case res.StatusCode >= http.StatusBadRequest:
		defer res.Body.Close()
		return nil, problem(r, res)
	}
	return res, nil
}

// problem reads an answer that is an error (RFC 9457).
func problem(r request, res *http.Response) error {
	var p struct {
		Detail string            `json:"detail"`
		Code   errcode.Code      `json:"code"`
		Errors []spec.FieldError `json:"errors"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, int64(limits.Message.Max)))
	if err != nil || json.Unmarshal(text, &p) != nil || p.Code == "" {
		code := errcode.Internal
		if res.StatusCode >= http.StatusBadGateway && res.StatusCode <= http.StatusGatewayTimeout {
			code = errcode.Unavailable // a proxy in front of the gateway
		}
		return errcode.Errorf(code, "%s %s: %s, and not from a gateway", r.method, r.path, res.Status)
	}
	if res.StatusCode == http.StatusUnauthorized {
		return errcode.Errorf(p.Code, "%s: is the token right (REGROUP_GATEWAY_TOKEN)?", p.Detail)
	}
	if len(p.Errors) > 0 {
		return errcode.RefuseAs(p.Code, p.Errors)
	}
	return errcode.Errorf(p.Code, "%s", p.Detail)
}

// persist repeats what fails for want of a gateway or a broker, until the patience ends.
func (c *Client) persist(ctx context.Context, attempt func() error) error {
	within, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	back := wait.Backoff{First: 50 * time.Millisecond, Max: time.Second}
	for {
		err := attempt()
		if err == nil || errcode.Of(err) != errcode.Unavailable || !back.Sleep(within) {
			return err
		}
	}
}

// do sends a request, again if need be, and decodes the answer; into may be nil. Only requests that
// may be carried out twice are passed here.
func (c *Client) do(ctx context.Context, r request, into any) error {
	return c.persist(ctx, func() error { return c.once(ctx, r, into) })
}

// once is do without a repetition.
func (c *Client) once(ctx context.Context, r request, into any) error {
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil {
		return nil
	}
	text, err := io.ReadAll(res.Body)
	switch {
	case ctx.Err() != nil:
		return errcode.Errorf(errcode.Cancelled, "%s %s: %w", r.method, r.path, context.Cause(ctx))
	case err != nil:
		return errcode.Errorf(errcode.Unavailable, "%s %s: the answer is not whole: %w", r.method, r.path, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errcode.Errorf(errcode.Internal, "%s %s: the answer is not what was expected: %w", r.method, r.path, err)
	}
	return nil
}

// Get reads a resource that has no method here, as /api/v1/jobs/JOB/summary.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, request{method: http.MethodGet, path: path}, into)
}

// Link returns an address that opens the dashboard once, within five minutes.
func (c *Client) Link(ctx context.Context) (string, error) {
	l, err := ask[struct {
		Path string `json:"path"`
	}](ctx, c, http.MethodPost, "/api/v1/links", nil)
	if err != nil {
		return "", err
	}
	if l.Path == "" {
		return "", errcode.Errorf(errcode.Internal, "%s answers something else than a link: is it a gateway?", c.url)
	}
	return c.url + l.Path, nil
}

// ask sends a request, with a body in JSON unless that is nil, and again if need be.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (answer T, err error) {
	r := request{method: method, path: path}
	if body != nil {
		if r, err = asJSON(method, path, body); err != nil {
			return answer, err
		}
	}
	err = c.do(ctx, r, &answer)
	return answer, err
}

// asJSON is a request with a JSON body.
func asJSON(method, path string, body any) (request, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return request{}, errcode.Errorf(errcode.Invalid, "%s %s: %w", method, path, err)
	}
	return request{method: method, path: path, body: text, header: map[string]string{"Content-Type": "application/json"}}, nil
}

// jobPath checks an id before it becomes a part of a path.
func jobPath(id ident.JobID, more string) (string, error) {
	if err := id.Check(); err != nil {
		return "", err
	}
	return "/api/v1/jobs/" + string(id) + more, nil
}

// isCancelled reports whether an error is only the end of ctx.
func isCancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errcode.Of(err) == errcode.Cancelled)
}
