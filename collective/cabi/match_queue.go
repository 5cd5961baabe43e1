//go:build cgo

package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// matchQueue matches the messages of one rank with calls of RG_RECV by their tags, as MPI does. A
// message has a header of two numbers, its tag and its length. The communicator delivers messages
// in the order in which they were sent; receivers may want another.
type matchQueue struct {
	from int
	c    *communicator

	mu         sync.Mutex
	posted     []*pendingRecv // in the order of the calls
	unexpected []unexpectedMessage
	reading    bool
}

// pendingRecv is a RG_RECV that waits for its message.
type pendingRecv struct {
	tag  int64
	into []byte
	r    *request

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

// unexpectedMessage is a message that has arrived before its RG_RECV.
type unexpectedMessage struct {
	tag  int64
	body []byte
}

const tagHeaderLen = 16

func (c *communicator) matchQueue(from int) *matchQueue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.matchQueues[from] == nil {
		c.matchQueues[from] = &matchQueue{from: from, c: c}
	}
	return c.matchQueues[from]
}

// sendTagged sends a message. It runs on the send queue of that rank, so headers and bodies are
// not interleaved.
func (c *communicator) sendTagged(to int, tag int64, p []byte) error {
	head := make([]byte, tagHeaderLen)
	binary.NativeEndian.PutUint64(head, uint64(tag))
	binary.NativeEndian.PutUint64(head[8:], uint64(len(p)))
	if err := c.Send(context.Background(), to, head); err != nil || len(p) == 0 {
		return err
	}
	return c.Send(context.Background(), to, p)
}

// recv posts a receive, for a message that may have arrived already.
func (q *matchQueue) recv(tag int64, into []byte) (*request, error) {
	r, err := q.c.newRequest()
	if err != nil {
		return nil, err
	}
	q.post(&pendingRecv{tag: tag, into: into, r: r})
	return r, nil
}

// recvAny posts a receive for the first message with a tag, of any rank. source is set before the
// request ends.
func (c *communicator) recvAny(tag int64, into []byte, source *int32) (*request, error) {
	r, err := c.newRequest()
	if err != nil {
		return nil, err
	}
	w := &pendingRecv{tag: tag, into: into, r: r, any: true, source: source}
	for rank := range c.World() {
		if rank != c.Rank() && !c.matchQueue(rank).post(w) {
			break
		}
	}
	return r, nil
}

// post gives w a message that has arrived, or keeps it until one does. It reports whether w still
// waits.
func (q *matchQueue) post(w *pendingRecv) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, m := range q.unexpected {
		if m.tag == w.tag {
			if w.claim(q.from) {
				q.unexpected = slices.Delete(q.unexpected, i, i+1)
				w.r.end(w.take(m.body))
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
		return invalidf("a message of %d bytes with tag %d has come, where %d were to be received", len(body), w.tag, len(w.into))
	}
	copy(w.into, body)
	return nil
}

// read delivers messages for as long as receives are posted.
func (q *matchQueue) read() {
	head := make([]byte, tagHeaderLen)
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
			w.r.end(q.body(w.into))
			continue
		}
		body := make([]byte, n)
		err := q.body(body)
		switch {
		case w == nil && err == nil:
			q.addUnexpected(unexpectedMessage{tag, body})
		case w != nil:
			w.r.end(cmp.Or(err, w.take(body)))
		}
	}
}

func (q *matchQueue) body(into []byte) error {
	if len(into) == 0 {
		return nil
	}
	return q.c.Recv(context.Background(), q.from, into)
}

// match removes and returns the oldest receive with this tag. The caller holds mu.
func (q *matchQueue) match(tag int64) *pendingRecv {
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
func (q *matchQueue) addUnexpected(m unexpectedMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.match(m.tag); w != nil {
		w.r.end(w.take(m.body))
		return
	}
	q.unexpected = append(q.unexpected, m)
}

func (q *matchQueue) fail(err error) {
	q.mu.Lock()
	posted := q.posted
	q.posted = nil
	q.mu.Unlock()
	for _, w := range posted {
		if w.claim(q.from) {
			w.r.end(err)
		}
	}
}
