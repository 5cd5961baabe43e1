//go:build cgo

package main

import (
	"context"
	"encoding/binary"
	"sync"
)

// matchQueue matches the messages of one rank with calls of rg_recv by their tags, as MPI does. A
// message has a header of two numbers, its tag and its length. The engine delivers messages in the
// order in which they were sent; receivers may want another.
type matchQueue struct {
	from int
	c    *communicator

	mu         sync.Mutex
	posted     []*pendingRecv // in the order of the calls
	unexpected []unexpectedMessage
	reading    bool
}

// pendingRecv is a call of rg_recv that waits for its message.
type pendingRecv struct {
	tag  int64
	into []byte
	r    *request
}

// unexpectedMessage is a message that has arrived before its rg_recv.
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

// sendTagged sends a message. The caller has the send queue of that rank.
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
func (p *matchQueue) recv(tag int64, into []byte) (*request, error) {
	r, err := p.c.start(nil)
	if err != nil {
		return nil, err
	}
	w := &pendingRecv{tag: tag, into: into, r: r}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.unexpected {
		if l.tag == tag {
			p.unexpected = append(p.unexpected[:i], p.unexpected[i+1:]...)
			r.end(w.take(l.body))
			return r, nil
		}
	}
	p.posted = append(p.posted, w)
	if !p.reading {
		p.reading = true
		go p.read()
	}
	return r, nil
}

func (w *pendingRecv) take(body []byte) error {
	if len(body) != len(w.into) {
		return w.mismatch(len(body))
	}
	copy(w.into, body)
	return nil
}

func (w *pendingRecv) mismatch(n int) error {
	return invalidf("a message of %d bytes with tag %d has come, where %d were to be received", n, w.tag, len(w.into))
}

// read delivers messages for as long as receives are posted.
func (p *matchQueue) read() {
	head := make([]byte, tagHeaderLen)
	for {
		p.mu.Lock()
		if len(p.posted) == 0 {
			p.reading = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if err := p.c.Recv(context.Background(), p.from, head); err != nil {
			p.fail(err)
			continue
		}
		tag, n := int64(binary.NativeEndian.Uint64(head)), int(binary.NativeEndian.Uint64(head[8:]))
		p.mu.Lock()
		w := p.match(tag)
		p.mu.Unlock()
		if w != nil && n == len(w.into) {
			w.r.end(p.body(w.into))
			continue
		}
		body := make([]byte, n)
		err := p.body(body)
		switch {
		case w != nil && err == nil:
			w.r.end(w.mismatch(n))
		case w != nil:
			w.r.end(err)
		case err == nil:
			p.addUnexpected(unexpectedMessage{tag, body})
		}
	}
}

func (p *matchQueue) body(into []byte) error {
	if len(into) == 0 {
		return nil
	}
	return p.c.Recv(context.Background(), p.from, into)
}

// match removes and returns the oldest receive with this tag. The caller holds mu.
func (p *matchQueue) match(tag int64) *pendingRecv {
	for i, w := range p.posted {
		if w.tag == tag {
			p.posted = append(p.posted[:i], p.posted[i+1:]...)
			return w
		}
	}
	return nil
}

// addUnexpected keeps a message, unless a receive for it has just been posted.
func (p *matchQueue) addUnexpected(l unexpectedMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.match(l.tag); w != nil {
		w.r.end(w.take(l.body))
		return
	}
	p.unexpected = append(p.unexpected, l)
}

func (p *matchQueue) fail(err error) {
	p.mu.Lock()
	posted := p.posted
	p.posted = nil
	p.mu.Unlock()
	for _, w := range posted {
		w.r.end(err)
	}
}
