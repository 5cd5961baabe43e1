package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

// Drain requests that a node gives up its work (undo: accepts work again) and waits until discovery
// shows or refuses it: NotFound if there is no such node.
func (c *Client) Drain(ctx context.Context, node events.NodeID, reason string, undo bool) error {
	return c.askNode(ctx, node, events.NodeDrain{Node: node, Reason: reason, Undo: undo}, func(v events.NodeView) bool { return v.Draining != undo })
}

// Quarantine requests a quarantine of a node, or of one of its slots, and waits for the reply.
func (c *Client) Quarantine(ctx context.Context, q events.NodeQuarantine) error {
	return c.askNode(ctx, q.Node, q, nil)
}

// Release requests the end of the quarantine of a node and its slots, or of one slot, and waits for
// the reply.
func (c *Client) Release(ctx context.Context, r events.NodeRelease) error {
	return c.askNode(ctx, r.Node, r, func(v events.NodeView) bool { return !Quarantined(v, r.Slot) })
}

// Quarantined reports whether a slot of a node is in quarantine or, with nil, whether the node or
// any slot of it is.
func Quarantined(v events.NodeView, slot *events.Slot) bool {
	if slot == nil {
		return v.Quarantine != nil || len(v.QuarantinedSlots) > 0
	}
	return slices.ContainsFunc(v.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == *slot })
}

// askNode publishes a command for a node and waits for its effect: a fact, a refusal, or a node for
// which shown holds; nil = only a fact counts.
func (c *Client) askNode(ctx context.Context, node events.NodeID, b events.Body, shown func(events.NodeView) bool) error {
	wait, cancel := c.requestContext(ctx)
	defer cancel()
	after := c.lastFact(wait)
	e, err := c.publish(wait, c.command("", b))
	if err != nil {
		return err
	}
	wait, done := context.WithCancelCause(wait)
	defer done(nil)
	var both errgroup.Group
	if shown != nil {
		both.Go(func() error {
			done(c.at.Load().Ports.Buckets.Bucket(events.BucketNodes).Watch(wait, func(key string, value []byte, _ uint64) {
				if key != string(node) || value == nil {
					return
				}
				if v, err := document.View[events.NodeView](value); err == nil && shown(v) {
					done(ErrStop)
				}
			}, nil))
			return nil
		})
	}
	both.Go(func() error {
		subjects := []string{events.FamilySubject(events.FamilyNode, string(node)), events.FactSubject(events.NodeRejected{}.Type(), unknownEntity)}
		answered, err := c.awaitAnswer(wait, e, after, subjects, func(events.Body) bool { return true })
		if answered && err == nil {
			err = ErrStop
		}
		done(err)
		return nil
	})
	_ = both.Wait() // the cause of wait is the error
	switch cause := context.Cause(wait); {
	case errors.Is(cause, ErrStop):
		return nil
	case errors.Is(cause, errNoAnswer):
		return c.unanswered("discovery", string(node))
	default:
		return cause
	}
}

// CloseRendezvous closes a job to further self-registering nodes. It repeats the request until
// there is a reply or ctx ends.
func (c *Client) CloseRendezvous(ctx context.Context, job events.JobID, reason string) (events.NodeMembership, error) {
	at := c.at.Load()
	if err := at.answers(false); err != nil {
		return events.NodeMembership{}, err
	}
	ask := events.RendezvousClose{Job: job, Reason: reason}
	var answer []byte
	err := c.retry(ctx, func(ctx context.Context) error {
		if err := expire(ctx, at.Ports.Clock, &ask.Expires); err != nil {
			return err
		}
		data, err := events.EncodeBody(ask)
		if err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		answer, err = at.Ports.Calls.Call(try, events.RequestSubject(events.ServiceRendezvous, events.VerbClose), data)
		return err
	})
	if err != nil {
		return events.NodeMembership{}, err
	}
	return events.DecodeBody[events.NodeMembership](answer)
}
