package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/internal/wait"
)

const (
	noticeAfter = time.Second // time before a wait is reported
	retryPause  = 100 * time.Millisecond
)

// requestContext returns the context of one request or command, which ends after AnswerWithin.
func (c *Client) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.AnswerWithin, errNoAnswer)
}

// errNoAnswer ends the wait for an answer.
var errNoAnswer = errors.New("no answer")

// Retry calls do until it no longer fails because a server is unavailable or elects a leader. When
// ctx ends, the error is the last one.
func Retry(ctx context.Context, do func(context.Context) error) error {
	last := errNoAnswer
	for {
		err := do(ctx)
		switch code := errcode.Of(err); {
		case code == errcode.Unavailable:
			last = err
		case code != errcode.Cancelled && !errors.Is(err, errNoAnswer):
			return err
		}
		if !wait.Sleep(ctx, retryPause) {
			return last
		}
	}
}

// retry is Retry for at most AnswerWithin, and reports to Waits.
func (c *Client) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	if c.Waits != nil {
		defer wait.After(noticeAfter, func() { c.Waits(fmt.Sprintf("waiting up to %s for an answer of the server", c.AnswerWithin)) })()
	}
	err := Retry(ctx, do)
	if code := errcode.Of(err); code != errcode.Unavailable && !errors.Is(err, errNoAnswer) {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errNoAnswer) {
		return cause
	}
	return errcode.Errorf(errcode.Unavailable, "the server has not answered within %s: does it run? More time: --timeout (%v)", c.AnswerWithin, err)
}

// AwaitNodes waits until discovery shows the named nodes as ready, with the agent that has the
// incarnation first, or newer ones. After a crash it may still show their predecessors.
func (c *Client) AwaitNodes(ctx context.Context, first ident.Incarnation, names ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errcode.Errorf(errcode.Unavailable, "discovery has not taken them in within 20 s"))
	defer cancel()
	ready := 0
	err := wait.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		all, err := c.Nodes(ctx)
		ready = 0
		for _, v := range all {
			if v.State == events.NodeStateReady && v.Incarnation >= first && slices.Contains(names, string(v.Node)) {
				ready++
			}
		}
		return ready == len(names), err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("ready: %d of %s: %w", ready, english.Plural(len(names), "node"), err)
	}
	return err
}

// exitsWithin bounds the wait for workers that are being stopped when their job has failed: one of
// them may have failed before the others.
const exitsWithin = 2 * time.Second

// AwaitExits returns the view of a job that has ended. If it has failed, it waits a while for the
// exits of workers that still ran then, and returns the newest view.
func (c *Client) AwaitExits(ctx context.Context, v events.JobView) (events.JobView, error) {
	limit, cancel := context.WithTimeout(ctx, exitsWithin)
	defer cancel()
	for v.State == events.JobStateFailed && v.ExitsMissing() && wait.Sleep(limit, 50*time.Millisecond) {
		now, err := c.Job(ctx, string(v.Job))
		if err != nil {
			return v, err
		}
		v = now
	}
	return v, nil
}
