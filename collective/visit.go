package collective

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Host answers visitors: processes that are not in the generation and want something of a member, like its state.
type Host struct {
	Job        string
	Generation uint64
	Token      string // of visitors; another one than that of the members
	// Serve talks to one visitor, and returns when that is over or ctx ends. The connection is closed then, and when ctx
	// ends.
	Serve func(ctx context.Context, conn net.Conn)
}

// maxVisits is how many visitors an endpoint serves at a time.
const maxVisits = 4

// hosting is a host with its visitors.
type hosting struct {
	Host
	life context.Context //nolint:containedctx // ends with its time as host
	end  context.CancelFunc
	gone sync.WaitGroup
	busy int // guarded by the endpoint's mu
}

// Host makes h the one that visitors reach from now on. Visits to the one before are ended, and over when it returns.
// nil = visitors are refused.
func (e *Endpoint) Host(h *Host) {
	var next *hosting
	if h != nil {
		next = &hosting{Host: *h}
		next.life, next.end = context.WithCancel(e.life)
	}
	e.mu.Lock()
	before := e.host
	e.host = next
	e.mu.Unlock()
	if before != nil {
		before.end()
		before.gone.Wait()
	}
}

// visited answers a visitor's hello and has it served.
func (e *Endpoint) visited(g *guest) {
	e.mu.Lock()
	h := e.host
	switch {
	case h == nil || h.Job != g.hello.job || h.Generation != g.hello.generation || e.closed:
		e.mu.Unlock()
		g.refuse(replyStale, fmt.Appendf(nil, "generation %d is not served here", g.hello.generation))
		return
	case !hmac.Equal(g.mac, dialerMAC(h.Token, g.challenge, g.body)):
		e.mu.Unlock()
		g.refuse(replyForeign, []byte("wrong token"))
		return
	case g.hello.order != byteOrder():
		e.mu.Unlock()
		g.refuse(replyMismatch, []byte("other byte order"))
		return
	case h.busy >= maxVisits:
		e.mu.Unlock()
		g.refuse(replyBusy, fmt.Appendf(nil, "%d visitors are being served", maxVisits))
		return
	}
	h.busy++
	h.gone.Add(1) // under mu: after Host has taken h out of its place nobody is added
	e.mu.Unlock()
	e.tasks.Go(func() {
		defer h.gone.Done()
		defer func() {
			_ = g.conn.Close()
			e.mu.Lock()
			h.busy--
			e.mu.Unlock()
		}()
		defer context.AfterFunc(h.life, func() { _ = g.conn.Close() })()
		if _, err := g.conn.Write(appendReply(h.Token, g.mac, replyWelcome, nil)); err != nil {
			return
		}
		_ = g.conn.SetDeadline(time.Time{})
		h.Serve(h.life, g.conn)
	})
}

// Visit connects to the host at an address. Its Serve field is not used. A refusal is a *RefusedError with rank -1.
func (e *Endpoint) Visit(ctx context.Context, address string, h Host) (net.Conn, error) {
	return e.call(ctx, address, h.Token, hello{
		purpose: forVisit, order: byteOrder(), world: 1, generation: h.Generation,
		stall: defaultStallAfter, job: h.Job,
	})
}

// Reach tells whether an endpoint answers at an address, whatever it thinks of the job; nil = it does.
func (e *Endpoint) Reach(ctx context.Context, address, job string, generation uint64) error {
	conn, err := e.call(ctx, address, "", hello{
		purpose: forProbe, order: byteOrder(), from: 0, to: 1, world: 2, generation: generation,
		stall: defaultStallAfter, job: job,
	})
	if err == nil {
		_ = conn.Close()
	}
	if errors.Is(err, ErrRefused) {
		return nil
	}
	return err
}

// call dials and shakes hands outside of any communicator.
func (e *Endpoint) call(ctx context.Context, address, token string, h hello) (net.Conn, error) {
	conn, err := e.transport.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	code, detail, err := introduce(conn, token, h)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && code != replyWelcome {
		err = &RefusedError{Rank: -1, Reason: string(detail), code: code}
	}
	if err == nil {
		return conn, nil
	}
	_ = conn.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, err
}
