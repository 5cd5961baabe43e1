package memory

import (
	"bytes"
	"context"

	"github.com/regroup-io/regroup/events/broker"
)

type signals struct{ *Client }

// Send implements broker.Signals.
func (s signals) Send(subject string, data []byte) error {
	if err := checkSize(len(data)); err != nil {
		return err
	}
	data = bytes.Clone(data)
	_ = s.do(Send, func() error { // the sender does not learn of a loss
		if s.down || s.bus.drops(subject) {
			return nil
		}
		s.bus.fan(subject, broker.Stored{Subject: subject, Data: data}, nil)
		if s.bus.o.Sent != nil {
			s.bus.changes = append(s.bus.changes, func() { s.bus.o.Sent(subject, data) })
		}
		return nil
	})
	return nil
}

func (b *Bus) drops(subject string) bool { return b.dropSignals != nil && b.dropSignals(subject) }

func (b *Bus) launch(s *stream, m broker.Stored) {
	if !b.drops(m.Subject) {
		b.fan(m.Subject, m, s)
	}
}

// fan delivers a message to the subscriptions of one kind. The bus must be locked.
func (b *Bus) fan(subject string, m broker.Stored, of *stream) {
	for _, sub := range pick(b, b.subs, subject) {
		if sub.stream == of {
			sub.push(m)
		}
	}
}

// Hear implements broker.Signals.
func (s signals) Hear(ctx context.Context, subject, queue string, fn func(subject string, data []byte), ready func()) error {
	sub := newMailbox[broker.Stored](s.Client)
	sub.subject, sub.queue = subject, queue
	return receive(ctx, sub, &s.bus.subs, nil, ready, func(m broker.Stored) { fn(m.Subject, m.Data) })
}

// Launches implements broker.Signals. It begins with the last launch of each subject.
func (s signals) Launches(ctx context.Context, stream, subject string, fn func(broker.Stored)) error {
	s.bus.mu.Lock()
	st, err := log(s).stream(stream)
	s.bus.mu.Unlock()
	if err != nil {
		return err
	}
	sub := newMailbox[broker.Stored](s.Client)
	sub.subject, sub.stream = subject, st
	return receive(ctx, sub, &s.bus.subs, func() {
		if !s.down {
			sub.items = st.lasts([]string{subject})
		}
	}, nil, fn)
}

// Watch implements broker.Signals.
func (s signals) Watch(ctx context.Context, fn func(connected bool)) error {
	w := newMailbox[bool](s.Client)
	return receive(ctx, w, &s.bus.watchers, func() { w.items = []bool{!s.down} }, nil, fn)
}
