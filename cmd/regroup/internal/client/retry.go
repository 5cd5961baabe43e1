package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
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

// retry calls do until it no longer fails because a server is unavailable or elects a leader, at
// most for AnswerWithin, and reports to Waits. The context of do ends then.
func (c *Client) retry(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := c.requestContext(ctx)
	defer cancel()
	if c.Waits != nil {
		defer wait.After(noticeAfter, func() { c.Waits(fmt.Sprintf("waiting up to %s for an answer of the server", c.AnswerWithin)) })()
	}
	last := errNoAnswer
	for {
		err := do(ctx)
		switch code := events.CodeOf(err); {
		case code == events.Unavailable:
			last = err
		case code != events.Cancelled && !errors.Is(err, errNoAnswer):
			return err
		}
		if wait.Sleep(ctx, retryPause) {
			continue
		}
		if cause := context.Cause(ctx); !errors.Is(cause, errNoAnswer) {
			return cause
		}
		return events.Errorf(events.Unavailable, "the server has not answered within %s: does it run? More time: --timeout (%v)", c.AnswerWithin, last)
	}
}

// AwaitNodes waits until discovery shows the named nodes as ready.
func (c *Client) AwaitNodes(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second, events.Errorf(events.Unavailable, "discovery has not taken them in within 20 s"))
	defer cancel()
	ready := 0
	err := wait.Until(ctx, 10*time.Millisecond, func() (bool, error) {
		all, err := c.Nodes(ctx)
		ready = 0
		for _, v := range all {
			if v.State == events.NodeStateReady && slices.Contains(names, string(v.Node)) {
				ready++
			}
		}
		return ready == len(names), err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("ready: %d of %s: %w", ready, events.Plural(len(names), "node"), err)
	}
	return err
}
