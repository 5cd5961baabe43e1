// Package tagged matches messages with receives by their tags, as MPI does: a communicator delivers
// messages in the order in which they were sent, and receivers may want another.
package tagged

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective"
)

// Messages are the tagged messages of one communicator, which sends no others. A message has a
// header of two numbers, its tag and its length. The methods are safe for concurrent use, except
// that messages to one rank are sent one after the other.
type Messages struct {
	c *collective.Communicator

	mu     sync.Mutex
	queues map[int]*queue
}

// New returns the messages of a communicator.
func New(c *collective.Communicator) *Messages { return &Messages{c: c, queues: map[int]*queue{}} }

// queue matches the messages of one rank.
type queue struct {
	from int
	c    *collective.Communicator

	mu         sync.Mutex
	posted     []*pendingRecv // in the order of the calls
	unexpected []unexpectedMessage
	reading    bool
}

// pendingRecv is a receive that waits for its message.
type pendingRecv struct {
	tag  int64
	into []byte
	end  func(error)

	// From any rank: it is in the queues of all ranks until claimed, by the first that has its
	// message, which writes its rank to source.
	any     bool
	claimed atomic.Bool
	source  *int32
}

// claim reports whether the caller is the one that ends the receive, with a message of a rank.
func (w *pendingRecv) claim(from int) bool {
	if !w.any {
		return true
	}
	if w.claimed.Swap(true) {
		return false
	}
	*w.source = int32(from)
	return true
}

// unexpectedMessage is a message that has arrived before its receive.
type unexpectedMessage struct {
	tag  int64
	body []byte
}

const headerLen = 16

func (m *Messages) of(rank int) *queue {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues[rank] == nil {
		m.queues[rank] = &queue{from: rank, c: m.c}
	}
	return m.queues[rank]
}

// Send sends a message and returns when p may be reused.
func (m *Messages) Send(to int, tag int64, p []byte) error {
	head := make([]byte, headerLen)
	binary.NativeEndian.PutUint64(head, uint64(tag))
	binary.NativeEndian.PutUint64(head[8:], uint64(len(p)))
	if err := m.c.Send(context.Background(), to, head); err != nil || len(p) == 0 {
		return err
	}
	return m.c.Send(context.Background(), to, p)
}

// Recv posts a receive, for a message that may have arrived already. end is called once, with an
// error of collective.ErrInvalid if the message has another length than into.
func (m *Messages) Recv(from int, tag int64, into []byte, end func(error)) {
	m.of(from).post(&pendingRecv{tag: tag, into: into, end: end})
}

// RecvAny is Recv for the first message with a tag, of any rank. source is set before end is
// called.
func (m *Messages) RecvAny(tag int64, into []byte, source *int32, end func(error)) {
	w := &pendingRecv{tag: tag, into: into, end: end, any: true, source: source}
	for rank := range m.c.World() {
		if rank != m.c.Rank() && !m.of(rank).post(w) {
			break
		}
	}
}

// post gives w a message that has arrived, or keeps it until one does. It reports whether w still
// waits.
func (q *queue) post(w *pendingRecv) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range q.unexpected {
		if m.tag == w.tag {
			if w.claim(q.from) {
				q.unexpected = slices.Delete(q.unexpected, i, i+1)
				w.end(w.take(m.body))
			}
			return false
		}
	}
	q.posted = append(q.posted, w)
	if !q.reading {
		q.reading = true
		go q.read()
	}
	return true
}

func (w *pendingRecv) take(body []byte) error {
	if len(body) != len(w.into) {
		return fmt.Errorf("%w: a message of %d bytes with tag %d has come, where %d were to be received",
			collective.ErrInvalid, len(body), w.tag, len(w.into))
	}
	copy(w.into, body)
	return nil
}

// read delivers messages for as long as receives are posted.
func (q *queue) read() {
	head := make([]byte, headerLen)
	for {
		q.mu.Lock()
		q.posted = slices.DeleteFunc(q.posted, func(w *pendingRecv) bool { return w.claimed.Load() })
		if len(q.posted) == 0 {
			q.reading = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		if err := q.c.Recv(context.Background(), q.from, head); err != nil {
			q.fail(err)
			continue
		}
		tag, n := int64(binary.NativeEndian.Uint64(head)), int(binary.NativeEndian.Uint64(head[8:]))
		q.mu.Lock()
		w := q.match(tag)
		q.mu.Unlock()
		if w != nil && n == len(w.into) {
			w.end(q.body(w.into))
			continue
		}
		body := make([]byte, n)
		err := q.body(body)
		switch {
		case w == nil && err == nil:
			q.addUnexpected(unexpectedMessage{tag, body})
		case w != nil:
			w.end(cmp.Or(err, w.take(body)))
		}
	}
}

func (q *queue) body(into []byte) error {
	if len(into) == 0 {
		return nil
	}
	return q.c.Recv(context.Background(), q.from, into)
}

// match removes and returns the oldest receive with this tag. The caller holds mu.
func (q *queue) match(tag int64) *pendingRecv {
	for i := 0; i < len(q.posted); i++ {
		if w := q.posted[i]; w.tag == tag {
			q.posted = slices.Delete(q.posted, i, i+1)
			if w.claim(q.from) {
				return w
			}
			i--
		}
	}
	return nil
}

// addUnexpected keeps a message, unless a receive for it has just been posted.
func (q *queue) addUnexpected(m unexpectedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.match(m.tag); w != nil {
		w.end(w.take(m.body))
		return
	}
	q.unexpected = append(q.unexpected, m)
}

func (q *queue) fail(err error) {
	q.mu.Lock()
	posted := q.posted
	q.posted = nil
	q.mu.Unlock()
	for _, w := range posted {
		if w.claim(q.from) {
			w.end(err)
		}
	}
}
