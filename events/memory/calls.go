package memory

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

type call struct {
	from  *Client
	data  []byte
	trace string
	reply chan answer // buffered: the first answer counts
}

type answer struct {
	data []byte
	err  error
}

type calls struct{ *Client }

// Call implements broker.Calls.
func (c calls) Call(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if err := checkSize(len(data)); err != nil {
		return nil, err
	}
	q := call{from: c.Client, data: bytes.Clone(data), trace: tracing.FromContext(ctx), reply: make(chan answer, 1)}
	c.bus.mu.Lock()
	if err := c.ready(ctx); err != nil {
		c.bus.mu.Unlock()
		return nil, err
	}
	there := pick(c.bus, c.bus.servers, subject)
	for _, s := range there {
		s.push(q)
	}
	c.bus.mu.Unlock()
	if len(there) == 0 {
		return nil, errcode.Errorf(errcode.Unavailable, "%w on %q", broker.ErrNoResponder, subject)
	}
	select {
	case a := <-q.reply:
		return a.data, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Serve implements broker.Calls.
func (c calls) Serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, data []byte) ([]byte, error)) error {
	s := newMailbox[call](c.Client)
	s.subject, s.queue = subject, queue
	var wg sync.WaitGroup
	defer wg.Wait()
	return receive(ctx, s, &c.bus.servers, nil, nil, func(q call) {
		wg.Go(func() { c.answer(ctx, q, handle) })
	})
}

func (c calls) answer(ctx context.Context, q call, handle func(ctx context.Context, data []byte) ([]byte, error)) {
	data, err := handle(tracing.NewContext(ctx, q.trace), q.data)
	a := answer{data: bytes.Clone(data)}
	if err != nil {
		// Only code and text, as over a network.
		a = answer{err: &errcode.Error{Code: errcode.Of(err), Text: err.Error()}}
	} else if err := checkSize(len(data)); err != nil {
		a = answer{err: err}
	}
	c.bus.mu.Lock()
	defer c.bus.mu.Unlock()
	if c.down || q.from.down {
		return // the answer is lost with the connection
	}
	select {
	case q.reply <- a:
	default: // another answer was first
	}
}

// pick returns the receivers of a message on subject: all without a queue, and one of each queue,
// in turn. The bus must be locked.
func pick[T any](b *Bus, all []*mailbox[T], subject string) []*mailbox[T] {
	var out []*mailbox[T]
	groups := map[string][]*mailbox[T]{}
	var order []string
	for _, x := range all {
		switch {
		case x.client.down || !events.Match(x.subject, subject):
		case x.queue == "":
			out = append(out, x)
		default:
			group := fmt.Sprintf("%T %s %s", x, x.subject, x.queue)
			if groups[group] == nil {
				order = append(order, group)
			}
			groups[group] = append(groups[group], x)
		}
	}
	for _, g := range order {
		out = append(out, groups[g][b.nextReceiver[g]%len(groups[g])])
		b.nextReceiver[g]++
	}
	return out
}
