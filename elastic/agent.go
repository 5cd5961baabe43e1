package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

const (
	callWithin  = 10 * time.Second // an ordinary call
	pollWithin  = 35 * time.Second // a long poll, which an agent answers after 25 s at the latest; then it is asked again
	admitWithin = 5 * time.Second  // what an agent that has come back needs to take its workers over
	firstRetry  = 20 * time.Millisecond
	lastRetry   = time.Second
)

// refusal is the agent's "no".
type refusal struct {
	status int
	body   wire.Error
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the agent refuses: %s (%s)", r.body.Message, r.body.Code)
}

// retryable tells whether the same call may succeed later.
func retryable(err error) bool {
	var r *refusal
	return !errors.As(err, &r) || r.status >= 500 || r.status == http.StatusTooManyRequests || unknown(err)
}

// answered tells whether the agent has said something, and knows this worker.
func answered(err error) bool {
	var r *refusal
	return errors.As(err, &r) && !unknown(err)
}

// unknown tells whether the agent does not know this worker: it has come back and not yet taken its workers over, or
// this worker has been replaced.
func unknown(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusForbidden
}

// agent is the client of the node's agent.
type agent struct {
	client   *http.Client
	token    string
	patience time.Duration
	orphan   time.Duration
}

func newAgent(o Options) *agent {
	var d net.Dialer
	return &agent{token: o.Token, patience: o.Patience, orphan: o.OrphanAfter, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", o.Socket) },
	}}}
}

func (a *agent) close() { a.client.CloseIdleConnections() }

// call makes one request; ok is false for 204, an empty answer.
func (a *agent) call(ctx context.Context, within time.Duration, method, target string, in, out any) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return false, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+target, body)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.client.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	switch {
	case err != nil:
		return false, err
	case res.StatusCode >= 400:
		r := &refusal{status: res.StatusCode}
		if json.Unmarshal(b, &r.body) != nil || r.body.Message == "" {
			r.body.Message = res.Status
		}
		return false, r
	case res.StatusCode == http.StatusNoContent || out == nil:
		return false, nil
	}
	return true, json.Unmarshal(b, out)
}

// insist repeats try until it is through, refused for good, ctx ends, or the agent has been unreachable for too long.
func (a *agent) insist(ctx context.Context, try func() (done bool, err error)) error {
	wait, since := firstRetry, time.Time{}
	for {
		asked := time.Now()
		done, err := try()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && done:
			return nil
		case err == nil: // it answered: nothing yet
			wait, since = firstRetry, time.Time{}
			continue
		case !retryable(err):
			return err
		}
		if since.IsZero() {
			since = asked // a frozen agent takes calls and never answers
		}
		limit := a.patience
		if unknown(err) {
			limit = min(limit, admitWithin)
		}
		if time.Since(since) > limit {
			return fmt.Errorf("the agent has not served this worker for %v: %w", limit, err)
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		wait = min(2*wait, lastRetry)
	}
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// join asks for a place until there is an answer. noticed is when the worker learnt that it must leave; zero = it starts.
func (a *agent) join(ctx context.Context, j wire.JoinRequest, noticed time.Time) (got wire.Assignment, err error) {
	err = a.insist(ctx, func() (bool, error) {
		if !noticed.IsZero() {
			j.NoticeMS = milliseconds(time.Since(noticed))
		}
		ok, err := a.call(ctx, pollWithin, http.MethodPost, wire.PathJoin, j, &got)
		if ok && err == nil && got.Verdict == wire.Assigned && got.Generation <= j.Left {
			return false, fmt.Errorf("the agent offers generation %d, which is over", got.Generation)
		}
		return ok, err
	})
	return got, err
}

// change waits for news about a generation; false = nothing yet.
func (a *agent) change(ctx context.Context, within time.Duration, generation uint64) (c wire.Change, ok bool, err error) {
	q := url.Values{"generation": {strconv.FormatUint(generation, 10)}}
	ok, err = a.call(ctx, within, http.MethodGet, wire.PathChanges+"?"+q.Encode(), nil, &c)
	return c, ok, err
}

// peer returns the address of a rank; it waits while the agent does not know it yet.
func (a *agent) peer(ctx context.Context, generation uint64, rank int) (string, error) {
	q := url.Values{"generation": {strconv.FormatUint(generation, 10)}, "rank": {strconv.Itoa(rank)}}
	var p wire.Peer
	err := a.insist(ctx, func() (bool, error) {
		ok, err := a.call(ctx, pollWithin, http.MethodGet, wire.PathPeers+"?"+q.Encode(), nil, &p)
		var r *refusal
		if errors.As(err, &r) && r.status == http.StatusNotFound {
			r.status = http.StatusServiceUnavailable // not known yet
		}
		return ok && p.Address != "", err
	})
	if err != nil {
		return "", fmt.Errorf("address of rank %d: %w", rank, err)
	}
	return p.Address, nil
}

// post sends a report once.
func (a *agent) post(ctx context.Context, path string, body any) error {
	_, err := a.call(ctx, callWithin, http.MethodPost, path, body, nil)
	return err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
