//go:build cgo

package main

import (
	"context"
	"encoding/binary"
	"sync"
)

// post is what comes from one rank: messages with tags, each behind a header of two numbers, its tag and its length. The
// engine delivers them in the order in which they were sent; who receives may want another.
type post struct {
	from int
	c    *communicator

	mu      sync.Mutex
	wanted  []*want // in the order of the calls
	early   []letter
	reading bool
}

// want is a call of rg_recv that waits for its message.
type want struct {
	tag  int64
	into []byte
	r    *request
}

// letter is a message that nobody wanted yet.
type letter struct {
	tag  int64
	body []byte
}

const letterHead = 16

func (c *communicator) post(from int) *post {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.posts[from] == nil {
		c.posts[from] = &post{from: from, c: c}
	}
	return c.posts[from]
}

// sendTagged sends a message. The caller has the line to that rank.
func (c *communicator) sendTagged(to int, tag int64, p []byte) error {
	head := make([]byte, letterHead)
	binary.NativeEndian.PutUint64(head, uint64(tag))
	binary.NativeEndian.PutUint64(head[8:], uint64(len(p)))
	if err := c.Send(context.Background(), to, head); err != nil || len(p) == 0 {
		return err
	}
	return c.Send(context.Background(), to, p)
}

// want puts a call in line for the message that it wants, which may have come already.
func (p *post) want(tag int64, into []byte) (*request, error) {
	r, err := p.c.start(nil)
	if err != nil {
		return nil, err
	}
	w := &want{tag: tag, into: into, r: r}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range p.early {
		if l.tag == tag {
			p.early = append(p.early[:i], p.early[i+1:]...)
			r.end(w.take(l.body))
			return r, nil
		}
	}
	p.wanted = append(p.wanted, w)
	if !p.reading {
		p.reading = true
		go p.read()
	}
	return r, nil
}

func (w *want) take(body []byte) error {
	if len(body) != len(w.into) {
		return w.mismatch(len(body))
	}
	copy(w.into, body)
	return nil
}

func (w *want) mismatch(n int) error {
	return invalidf("a message of %d bytes with tag %d has come, where %d were to be received", n, w.tag, len(w.into))
}

// read delivers messages for as long as somebody wants one.
func (p *post) read() {
	head := make([]byte, letterHead)
	for {
		p.mu.Lock()
		if len(p.wanted) == 0 {
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
		w := p.wanter(tag)
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
			p.keep(letter{tag, body})
		}
	}
}

func (p *post) body(into []byte) error {
	if len(into) == 0 {
		return nil
	}
	return p.c.Recv(context.Background(), p.from, into)
}

// wanter takes the oldest call that wants this tag. The caller holds mu.
func (p *post) wanter(tag int64) *want {
	for i, w := range p.wanted {
		if w.tag == tag {
			p.wanted = append(p.wanted[:i], p.wanted[i+1:]...)
			return w
		}
	}
	return nil
}

// keep puts a message aside, unless a call that wants it has just come.
func (p *post) keep(l letter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.wanter(l.tag); w != nil {
		w.r.end(w.take(l.body))
		return
	}
	p.early = append(p.early, l)
}

func (p *post) fail(err error) {
	p.mu.Lock()
	wanted := p.wanted
	p.wanted = nil
	p.mu.Unlock()
	for _, w := range wanted {
		w.r.end(err)
	}
}
