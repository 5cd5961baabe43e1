package jetstream

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

// callLimit limits a call whose context has no deadline: a lost answer must not block it for ever.
const callLimit = 10 * time.Second

// handlersAtOnce limits the concurrent handlers of one Serve; more calls wait in the subscription.
const handlersAtOnce = 4096

type calls struct{ c *Conn }

// Call implements broker.Calls.
func (p calls) Call(ctx context.Context, subject string, data []byte) ([]byte, error) {
	limit := callLimit
	if d, ok := ctx.Deadline(); ok {
		limit = max(time.Until(d)+time.Second, time.Second) // the caller's deadline decides
	}
	var out []byte
	var refusal error
	err := p.c.attempt(ctx, "call "+subject, subject, limit, func(ctx context.Context) error {
		m, err := p.request(ctx, &nats.Msg{Subject: subject, Header: outgoing(ctx, nil), Data: data})
		if err != nil {
			return err
		}
		if code := broker.HeaderValue(m.Header, events.HeaderErrorCode); code != "" {
			refusal = &errcode.Error{Code: errcode.Code(code), Text: broker.HeaderValue(m.Header, events.HeaderErrorText)}
		}
		out = m.Data
		return nil
	})
	if err == nil && refusal != nil {
		return nil, refusal
	}
	return out, err
}

// request sends a request and waits for its answer: that of an agent comes on a subject of its
// node. An agent with credentials of before answers anywhere, and this process may have some that
// do not permit to hear it there.
func (p calls) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	node, ok := events.AskedAgent(m.Subject)
	m.Reply = events.AnswerSubject(node, rand.Text())
	if !ok || p.c.creds.Deaf(m.Reply) {
		m.Reply = ""
		return p.c.nc.RequestMsgWithContext(ctx, m)
	}
	answers := make(chan *nats.Msg, 1) // that of SubscribeSync has room for 65,536
	sub, err := p.c.nc.ChanSubscribe(m.Reply, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be closed
	if err := p.c.nc.PublishMsg(m); err != nil {
		return nil, err
	}
	select {
	case answer := <-answers:
		if len(answer.Data) == 0 && answer.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Serve implements broker.Calls.
func (p calls) Serve(ctx context.Context, subject, queue string, handle func(ctx context.Context, data []byte) ([]byte, error)) error {
	var running sync.WaitGroup
	slots := make(chan struct{}, handlersAtOnce)
	err := p.c.subscribe(ctx, subject, queue, func(m *nats.Msg) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		running.Go(func() {
			defer func() { <-slots }()
			p.answer(ctx, m, handle)
		})
	}, nil)
	running.Wait()
	return err
}

func (p calls) answer(ctx context.Context, m *nats.Msg, handle func(ctx context.Context, data []byte) ([]byte, error)) {
	reply := &nats.Msg{Subject: m.Reply, Header: nats.Header{}}
	ctx = tracing.NewContext(ctx, broker.HeaderValue(m.Header, events.HeaderTrace))
	data, err := p.guarded(ctx, m, handle)
	if m.Reply == "" || events.Reserved(m.Reply) {
		return // nobody waits; and nobody may write through the answers of a service
	}
	if err == nil {
		reply.Data = data
		err = coded("answer "+m.Subject, p.c.nc.PublishMsg(reply))
		if errcode.Of(err) != errcode.TooLarge {
			return // the answer cannot be sent; the caller times out
		}
		reply.Data = nil
	}
	reply.Header[events.HeaderErrorCode] = []string{string(errcode.Of(err))}
	reply.Header[events.HeaderErrorText] = []string{oneLine(err.Error())}
	if err := p.c.nc.PublishMsg(reply); err != nil {
		p.c.log.WarnContext(ctx, "a refusal could not be sent", "subject", m.Subject, "reason", err.Error())
	}
}

// guarded runs the handler; a panic fails one call, not the process.
func (p calls) guarded(ctx context.Context, m *nats.Msg, handle func(ctx context.Context, data []byte) ([]byte, error)) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.c.log.ErrorContext(ctx, "a handler panicked", "subject", m.Subject, "reason", fmt.Sprint(r))
			err = errcode.Errorf(errcode.Internal, "the handler of %s panicked: %v", m.Subject, r)
		}
	}()
	return handle(ctx, m.Data)
}

// oneLine makes a text valid for a header.
func oneLine(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }
