package memory

import (
	"bytes"
	"context"

	"github.com/regroup-io/regroup/events"
)

// subscription is a subscription to signals, or to launches with their stream.
type subscription struct {
	client  *Client
	subject string
	queue   string
	stream  *stream // launches only
	mailbox *mailbox[events.Stored]
}

type stateWatcher struct {
	client  *Client
	mailbox *mailbox[bool]
}

type signals struct{ *Client }

// Send implements events.Signals.
func (s signals) Send(subject string, data []byte) error {
	if err := checkSize(len(data)); err != nil {
		return err
	}
	data = bytes.Clone(data)
	_ = s.do(Send, func() error { // the sender does not learn of a loss
		if s.down || s.bus.drops(subject) {
			return nil
		}
		s.bus.fan(subject, events.Stored{Subject: subject, Data: data}, nil)
		if s.bus.o.Sent != nil {
			s.bus.changes = append(s.bus.changes, func() { s.bus.o.Sent(subject, data) })
		}
		return nil
	})
	return nil
}

func (b *Bus) drops(subject string) bool { return b.dropSignals != nil && b.dropSignals(subject) }

// launch delivers a stored message to subscribers.
func (b *Bus) launch(s *stream, m events.Stored) {
	if !b.drops(m.Subject) {
		b.fan(m.Subject, m, s)
	}
}

// fan delivers a message to the subscriptions of one kind. The bus must be locked.
func (b *Bus) fan(subject string, m events.Stored, of *stream) {
	subs := pick(b, b.subs, subject, func(s *subscription) (*Client, string, string) { return s.client, s.subject, s.queue })
	for _, sub := range subs {
		if sub.stream == of {
			sub.mailbox.push(m)
		}
	}
}

// subscribe registers sub until the returned function is called; launches begin with the last one
// of each subject.
func (b *Bus) subscribe(sub *subscription) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sub.stream != nil && !sub.client.down {
		sub.mailbox.items = sub.stream.lasts([]string{sub.subject})
	}
	return register(b, &b.subs, sub)
}

// Hear implements events.Signals.
func (s signals) Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error {
	sub := &subscription{client: s.Client, subject: subject, queue: queue, mailbox: newMailbox[events.Stored]()}
	defer s.bus.subscribe(sub)()
	if ready != nil {
		ready()
	}
	return drain(ctx, s.bus, sub.mailbox, func(m events.Stored) { fn(m.Subject, m.Data) })
}

// Launches implements events.Signals.
func (s signals) Launches(ctx context.Context, stream, subject string, fn func(events.Stored)) error {
	s.bus.mu.Lock()
	st, err := log(s).stream(stream)
	s.bus.mu.Unlock()
	if err != nil {
		return err
	}
	sub := &subscription{client: s.Client, subject: subject, stream: st, mailbox: newMailbox[events.Stored]()}
	defer s.bus.subscribe(sub)()
	return drain(ctx, s.bus, sub.mailbox, fn)
}

// Watch implements events.Signals.
func (s signals) Watch(ctx context.Context, fn func(connected bool)) error {
	w := &stateWatcher{client: s.Client, mailbox: newMailbox[bool]()}
	s.bus.mu.Lock()
	w.mailbox.items = []bool{!s.down}
	leave := register(s.bus, &s.bus.watchers, w)
	s.bus.mu.Unlock()
	defer leave()
	return drain(ctx, s.bus, w.mailbox, fn)
}
