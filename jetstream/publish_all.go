package jetstream

import (
	"context"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
)

const (
	// ackEvery is the number of messages per acknowledged one. An acknowledgement costs the servers
	// as much as a message, and a stream stores the messages of one connection in order: an
	// acknowledged one implies those before it.
	ackEvery = 64
	// underWay is how many acknowledgements are awaited at once: enough to hide a replicated
	// stream's latency, few enough to keep the server's queue for the stream short.
	underWay = 4
	// manyLimit limits all of them together.
	manyLimit = 10 * time.Second
)

// PublishAll implements events.Log. One connection keeps the order of its messages, and nothing is
// retried here: a retry could change the order.
func (p logPort) PublishAll(ctx context.Context, all []events.Message) error {
	if len(all) == 0 {
		return nil
	}
	what := "publish " + all[0].Subject + " and others"
	return p.c.attempt(ctx, what, all[0].Subject, manyLimit, func(inner context.Context) error {
		waiting := make([]js.PubAckFuture, 0, underWay)
		for i, m := range all {
			msg := message(ctx, m)
			if (i+1)%ackEvery != 0 && i+1 != len(all) {
				if err := p.c.nc.PublishMsg(msg); err != nil {
					return err
				}
				continue
			}
			if len(waiting) == underWay {
				if err := acknowledged(inner, waiting[0]); err != nil {
					return err
				}
				waiting = append(waiting[:0], waiting[1:]...)
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
