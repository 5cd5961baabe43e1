// Package agentclient calls the worker API of the node's agent.
package agentclient

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

	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const (
	callTimeout  = 10 * time.Second
	pollTimeout  = 35 * time.Second // of a long poll, which an agent answers within 25 s
	admitTimeout = 5 * time.Second  // in which a restarted agent takes its workers over
	maxResponse  = 16 << 20
)

// Backoff is the wait between calls that fail.
var Backoff = wait.Backoff{First: 20 * time.Millisecond, Max: time.Second}

// Client is a client of the agent. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	token   string
	timeout time.Duration
}

// New returns a client of the agent at a Unix socket. The token identifies this worker. timeout is
// for how long calls may fail, by no answer or one that may change, before a call that is retried
// fails.
func New(socket, token string, timeout time.Duration) *Client {
	var d net.Dialer
	return &Client{token: token, timeout: timeout, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

type responseError struct {
	status int
	body   workerprotocol.Error
}

func (e *responseError) Error() string {
	return fmt.Sprintf("the agent refuses: %s (%s)", e.body.Message, e.body.Code)
}

// retryable reports whether the same call may succeed later.
func retryable(err error) bool {
	var e *responseError
	return !errors.As(err, &e) || e.status >= 500 || e.status == http.StatusTooManyRequests || unknownWorker(err)
}

// Answered reports whether an error is the answer of an agent that knows this worker.
func Answered(err error) bool {
	var e *responseError
	return errors.As(err, &e) && !unknownWorker(err)
}

// unknownWorker reports whether the agent does not know this worker: the agent was restarted and
// has not taken its workers over yet, or this worker was replaced.
func unknownWorker(err error) bool {
	var e *responseError
	return errors.As(err, &e) && e.status == http.StatusForbidden
}

// call makes one request. ok is false if the response is empty (204), or out is nil.
func (c *Client) call(ctx context.Context, timeout time.Duration, method, target string, in, out any) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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
	req.Header.Set("Authorization", "Bearer "+c.token)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case err != nil:
		return false, err
	case res.StatusCode >= 400:
		e := &responseError{status: res.StatusCode}
		if json.Unmarshal(b, &e.body) != nil || e.body.Message == "" {
			e.body.Message = res.Status
		}
		return false, e
	case res.StatusCode == http.StatusNoContent || out == nil:
		return false, nil
	}
	return true, json.Unmarshal(b, out)
}

// retry repeats attempt until it is done, the agent refuses it for good, ctx ends, or calls have
// failed for too long.
func (c *Client) retry(ctx context.Context, attempt func() (done bool, err error)) error {
	retry, failingSince := Backoff, time.Time{}
	for {
		began := time.Now()
		done, err := attempt()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && done:
			return nil
		case err == nil: // the long poll ended without a result
			retry, failingSince = Backoff, time.Time{}
			continue
		case !retryable(err):
			return err
		}
		if failingSince.IsZero() {
			failingSince = began // a frozen agent accepts calls and never answers
		}
		limit := c.timeout
		if unknownWorker(err) {
			limit = min(limit, admitTimeout)
		}
		if time.Since(failingSince) > limit {
			return fmt.Errorf("the agent has not served this worker for %v: %w", limit, err)
		}
		if !retry.Sleep(ctx) {
			return context.Cause(ctx)
		}
	}
}

// Join asks for a place in a generation and returns when the agent has assigned one or refused.
// decided is when the worker noticed what made it leave its last generation; zero = it starts.
func (c *Client) Join(ctx context.Context, j workerprotocol.JoinRequest, decided time.Time) (a workerprotocol.Assignment, err error) {
	err = c.retry(ctx, func() (bool, error) {
		if !decided.IsZero() {
			j.NoticeMS = Milliseconds(time.Since(decided))
		}
		ok, err := c.call(ctx, pollTimeout, http.MethodPost, workerprotocol.PathJoin, j, &a)
		if ok && err == nil && a.Verdict == workerprotocol.Assigned && a.Generation <= j.Left {
			return false, fmt.Errorf("the agent offers generation %d, which is over", a.Generation)
		}
		return ok, err
	})
	return a, err
}

// Change waits until the agent tells the worker to leave a generation, to abort it, or to stop. ok
// is false if the agent has answered that there was nothing; it does so after 25 s.
func (c *Client) Change(ctx context.Context, within time.Duration, generation uint64) (change workerprotocol.Change, ok bool, err error) {
	q := url.Values{"generation": {strconv.FormatUint(generation, 10)}}
	ok, err = c.call(ctx, min(pollTimeout, within), http.MethodGet, workerprotocol.PathChanges+"?"+q.Encode(), nil, &change)
	return change, ok, err
}

// PeerAddress returns the address of a rank. It waits while the agent does not know the address
// yet.
func (c *Client) PeerAddress(ctx context.Context, generation uint64, rank int) (string, error) {
	q := url.Values{"generation": {strconv.FormatUint(generation, 10)}, "rank": {strconv.Itoa(rank)}}
	var p workerprotocol.Peer
	err := c.retry(ctx, func() (bool, error) {
		ok, err := c.call(ctx, pollTimeout, http.MethodGet, workerprotocol.PathPeers+"?"+q.Encode(), nil, &p)
		if e, ok := errors.AsType[*responseError](err); ok && e.status == http.StatusNotFound {
			e.status = http.StatusServiceUnavailable // not known yet
		}
		return ok && p.Address != "", err
	})
	if err != nil {
		return "", fmt.Errorf("address of rank %d: %w", rank, err)
	}
	return p.Address, nil
}

// Checkpoint asks whether a checkpoint may be written. A refusal has the agent's reason. If it is
// Ending, the job ends and needs no checkpoint.
func (c *Client) Checkpoint(ctx context.Context, r workerprotocol.CheckpointRequest) error {
	return c.post(ctx, workerprotocol.PathCheckpoint, r)
}

// Ending reports whether the agent has refused a checkpoint because the job ends.
func Ending(err error) bool {
	e, ok := errors.AsType[*responseError](err)
	return ok && e.status == http.StatusConflict
}

// Done reports that the training is complete. It repeats that until the agent has accepted it.
func (c *Client) Done(ctx context.Context, d workerprotocol.DoneReport) error {
	return c.retry(ctx, func() (bool, error) {
		err := c.post(ctx, workerprotocol.PathDone, d)
		return err == nil, err
	})
}

func (c *Client) post(ctx context.Context, path string, body any) error {
	_, err := c.call(ctx, callTimeout, http.MethodPost, path, body, nil)
	return err
}

// Milliseconds converts a duration to the unit of the worker API.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
