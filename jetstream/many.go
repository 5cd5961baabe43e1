package jetstream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

const (
	// underWay is how many publishes wait for their acknowledgement at once: enough to hide a replicated stream's latency, few
	// enough that the server's queue for the stream stays short.
	underWay = 256
	// manyLimit bounds all of them together.
	manyLimit = 10 * time.Second
)

// PublishAll implements events.Log. One connection keeps the order of what is sent on it, and nothing is sent again here: a
// repetition could overtake.
func (p logPort) PublishAll(ctx context.Context, all []events.Message) error {
	if len(all) == 0 {
		return nil
	}
	what := "publish " + all[0].Subject + " and others"
	return p.c.attempt(ctx, what, all[0].Subject, manyLimit, func(inner context.Context) error {
		waiting := make([]js.PubAckFuture, 0, underWay)
		for _, m := range all {
			if len(waiting) == underWay {
				if err := acknowledged(inner, waiting[0]); err != nil {
					return err
				}
				waiting = append(waiting[:0], waiting[1:]...)
			}
			msg := &nats.Msg{Subject: m.Subject, Header: outgoing(ctx, m.Header), Data: m.Data}
			if m.ID != "" {
				msg.Header[js.MsgIDHeader] = []string{m.ID}
			}
			f, err := p.c.js.PublishMsgAsync(msg, js.WithRetryAttempts(0))
			if err != nil {
				return err
			}
			waiting = append(waiting, f)
		}
		for _, f := range waiting {
			if err := acknowledged(inner, f); err != nil {
				return err
			}
		}
		return nil
	})
}

// acknowledged waits for one acknowledgement.
func acknowledged(ctx context.Context, f js.PubAckFuture) error {
	select {
	case <-f.Ok():
		return nil
	case err := <-f.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
