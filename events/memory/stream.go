package memory

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tracing"
)

// dedupWindow is how long a stream remembers message ids, JetStream's default.
const dedupWindow = 2 * time.Minute

type stream struct {
	name      string
	subjects  string
	workQueue bool // a settled message is removed
	lastOnly  bool // a message replaces the previous one on its subject
	seq       uint64
	messages  []broker.Stored          // by sequence
	last      map[string]broker.Stored // newest per subject
	ids       map[string]uint64
	recent    []remembered // ids in order of time
	durables  map[string]*durable
	readers   []chan struct{} // woken by each message
}

type remembered struct {
	id string
	at time.Time
}

func (s *stream) wakeAll() {
	for _, r := range s.readers {
		wakeUp(r)
	}
}

// enter registers a reader and returns its removal. Both lock the bus.
func (b *Bus) enter(s *stream) (wake chan struct{}, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wake = make(chan struct{}, 1)
	return wake, register(b, &s.readers, wake)
}

// index returns the index of the first message at or after seq.
func (s *stream) index(seq uint64) int {
	i, _ := slices.BinarySearchFunc(s.messages, seq, func(m broker.Stored, seq uint64) int { return cmp.Compare(m.Sequence, seq) })
	return i
}

func (s *stream) remove(seq uint64) {
	i := s.index(seq)
	if i == len(s.messages) || s.messages[i].Sequence != seq {
		return
	}
	m := s.messages[i]
	s.messages = slices.Delete(s.messages, i, i+1)
	if s.last[m.Subject].Sequence != seq {
		return
	}
	delete(s.last, m.Subject)
	for _, older := range slices.Backward(s.messages) {
		if older.Subject == m.Subject {
			s.last[m.Subject] = older
			return
		}
	}
}

// lasts returns the newest message of each matching subject, in order of sequence.
func (s *stream) lasts(patterns []string) []broker.Stored {
	var out []broker.Stored
	for subject, m := range s.last {
		if events.MatchAny(patterns, subject) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b broker.Stored) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return out
}

func (s *stream) store(m broker.Message, now time.Time, dedup time.Duration) uint64 {
	for len(s.recent) > 0 && now.Sub(s.recent[0].at) >= dedup {
		delete(s.ids, s.recent[0].id)
		s.recent = s.recent[1:]
	}
	if seq, known := s.ids[m.ID]; known && m.ID != "" {
		return seq
	}
	s.seq++
	if m.ID != "" {
		s.ids[m.ID] = s.seq
		s.recent = append(s.recent, remembered{m.ID, now})
	}
	if old, ok := s.last[m.Subject]; ok && s.lastOnly {
		s.remove(old.Sequence)
	}
	st := broker.Stored{Subject: m.Subject, Header: m.Header, Data: m.Data, Sequence: s.seq, Time: now}
	s.messages = append(s.messages, st)
	s.last[m.Subject] = st
	s.wakeAll()
	return s.seq
}

type log struct{ *Client }

// stream returns the stream with a name. The bus must be locked.
func (l log) stream(name string) (*stream, error) {
	s := l.bus.streams[name]
	if s == nil {
		return nil, errcode.Errorf(errcode.Unavailable, "there is no stream %q", name)
	}
	return s, nil
}

// Now implements broker.Clock.
func (l log) Now(ctx context.Context) (time.Time, error) {
	if ctx.Err() != nil {
		return time.Time{}, context.Cause(ctx)
	}
	var now time.Time
	err := l.do(Now, func() error { now = l.bus.o.Now(); return nil })
	return now, err
}

// PublishAll implements broker.Log.
func (l log) PublishAll(ctx context.Context, all []broker.Message) error {
	for _, m := range all {
		if _, err := l.Publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// Publish implements broker.Log.
func (l log) Publish(ctx context.Context, m broker.Message) (uint64, error) {
	if err := checkSize(len(m.Data)); err != nil {
		return 0, err
	}
	m = copied(m)
	if t := tracing.FromContext(ctx); t != "" && len(m.Header[events.HeaderTrace]) == 0 {
		if m.Header == nil {
			m.Header = map[string][]string{}
		}
		m.Header[events.HeaderTrace] = []string{t}
	}
	var seq uint64
	err := l.do(Publish, func() error {
		err := l.ready(ctx)
		if err == nil {
			seq, err = l.bus.publish(m)
		}
		return err
	})
	return seq, err
}

// publish stores a message in its stream. The bus must be locked.
func (b *Bus) publish(m broker.Message) (uint64, error) {
	for _, s := range b.streams {
		if !events.Match(s.subjects, m.Subject) {
			continue
		}
		answer := error(nil)
		if b.failPublish != nil {
			var store bool
			if store, answer = faultResult(b.failPublish(m.Subject)); !store {
				return 0, answer
			}
		}
		before := s.seq
		seq := s.store(m, b.o.Now(), b.o.Dedup)
		if s.seq > before {
			stored := s.messages[len(s.messages)-1]
			b.launch(s, stored)
			if b.o.Stored != nil {
				b.changes = append(b.changes, func() { b.o.Stored(s.name, stored) })
			}
		}
		return seq, answer
	}
	return 0, errcode.Errorf(errcode.Unavailable, "no stream stores subject %q", m.Subject)
}

// Last implements broker.Log.
func (l log) Last(ctx context.Context, name, subject string) (broker.Stored, error) {
	return l.read(ctx, name, func(s *stream) (broker.Stored, bool) {
		if m, ok := s.last[subject]; ok {
			return m, true
		}
		return first(slices.Backward(s.messages), subject)
	})
}

// Next implements broker.Log.
func (l log) Next(ctx context.Context, name, subject string, from uint64) (broker.Stored, error) {
	return l.read(ctx, name, func(s *stream) (broker.Stored, bool) { return first(slices.All(s.messages[s.index(from):]), subject) })
}

// read finds a message of a stream; NotFound if there is none.
func (l log) read(ctx context.Context, name string, find func(*stream) (broker.Stored, bool)) (found broker.Stored, err error) {
	err = l.do(Last, func() error {
		if err := l.ready(ctx); err != nil {
			return err
		}
		s, err := l.stream(name)
		if err != nil {
			return err
		}
		var ok bool
		if found, ok = find(s); !ok {
			return errcode.Errorf(errcode.NotFound, "stream %s has no such message", name)
		}
		return nil
	})
	return found, err
}

// first returns the first message on a subject, perhaps with wildcards.
func first(messages iter.Seq2[int, broker.Stored], subject string) (broker.Stored, bool) {
	for _, m := range messages {
		if events.Match(subject, m.Subject) {
			return m, true
		}
	}
	return broker.Stored{}, false
}

// Follow implements broker.Log.
func (l log) Follow(ctx context.Context, f broker.Follow, fn func(broker.Stored) error, caughtUp func()) error {
	l.bus.mu.Lock()
	s, err := l.stream(f.Stream)
	l.bus.mu.Unlock()
	if err != nil {
		return err
	}
	wake, leave := l.bus.enter(s)
	defer leave()

	var batch []broker.Stored
	var next, goal uint64
	started := false
	for {
		l.bus.mu.Lock()
		switch {
		case l.down:
		case !started:
			started, goal = true, s.seq
			switch f.Start {
			case broker.FromNew:
				next = s.seq + 1
			case broker.FromSequence:
				next = f.Sequence
			case broker.FromTime:
				next = s.seq + 1
				for _, m := range s.messages {
					if !m.Time.Before(f.Since) {
						next = m.Sequence
						break
					}
				}
			}
			fallthrough
		default:
			for _, m := range s.messages[s.index(next):] {
				if events.MatchAny(f.Subjects, m.Subject) {
					batch = append(batch, m)
				}
			}
			next = max(next, s.seq+1)
		}
		l.bus.mu.Unlock()
		for i, m := range batch {
			if started && caughtUp != nil && m.Sequence > goal {
				caughtUp()
				caughtUp = nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := fn(batch[i]); err != nil {
				return err
			}
		}
		batch = nil
		if started && caughtUp != nil {
			caughtUp()
			caughtUp = nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
