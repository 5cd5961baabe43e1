package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

const (
	sayAfter    = time.Second // how long is waited in silence
	insistPause = 100 * time.Millisecond
)

// patience returns a context for one question or command, from its first word to the answer.
func (c *Client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.AnswerWithin, errNoAnswer)
}

// insist repeats what fails because a server is away or elects a leader, for AnswerWithin at most,
// and tells Waits. do is given a context that ends then.
func (c *Client) insist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := c.patience(ctx)
	defer cancel()
	if c.Waits != nil {
		quiet := time.AfterFunc(sayAfter, func() { c.Waits(fmt.Sprintf("waiting up to %s for an answer of the server", c.AnswerWithin)) })
		defer quiet.Stop()
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
		select {
		case <-time.After(insistPause):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errNoAnswer) {
				return cause
			}
			return events.Errorf(events.Unavailable, "the server has not answered within %s: does it run? More time: --timeout (%v)", c.AnswerWithin, last)
		}
	}
}
