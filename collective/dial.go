package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// dial connects to a rank and returns when the rank has accepted. A refusal is a
// *RefusedError, except that a generation which failed there returns its failure.
func (c *Communicator) dial(ctx context.Context, rank int, why purpose, stream int) (net.Conn, error) {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		conn, err := c.dialOnce(ctx, rank, why, stream)
		var no *RefusedError
		if !errors.As(err, &no) || no.code != replyBusy {
			return conn, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *Communicator) dialOnce(ctx context.Context, rank int, why purpose, stream int) (net.Conn, error) {
	addr, err := c.opt.Peers(ctx, rank)
	if err != nil {
		return nil, fmt.Errorf("address of rank %d: %w", rank, err)
	}
	conn, err := c.connectTo(ctx, addr)
	if err != nil {
		return nil, err
	}
	// The acceptor may have to wait for its own assignment before it answers, so
	// there is no deadline but the context's.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = c.introduce(conn, rank, why, stream)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if why == forRing && c.Failed() != nil {
			// The peer may have welcomed us in this moment; it reads this next.
			_ = conn.SetWriteDeadline(time.Now().Add(sayAbort))
			_ = newLink(c, conn, rank).send(head{kind: frameAbort}, c.verdict())
		}
		if why == forVigil {
			waive(conn) // likewise
		}
		_ = conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return conn, nil
}

// connectTo makes a connection within half the time that a peer may be silent: a machine that is there answers at once,
// even if its program is not ready. Across a link that drops everything the system would try for minutes.
func (c *Communicator) connectTo(ctx context.Context, addr string) (net.Conn, error) {
	limit, cancel := context.WithTimeoutCause(ctx, c.opt.StallAfter/2, ErrUnreachable)
	defer cancel()
	conn, err := c.opt.Endpoint.transport.Dial(limit, addr)
	if err != nil && ctx.Err() == nil && limit.Err() != nil {
		return nil, ErrUnreachable
	}
	return conn, err
}

func (c *Communicator) introduce(conn net.Conn, rank int, why purpose, stream int) error {
	code, detail, err := introduce(conn, c.opt.Token, hello{
		purpose: why, order: byteOrder(), from: c.opt.Rank, to: rank, world: c.opt.World, stream: stream,
		generation: c.opt.Generation, settings: c.opt.settings(), stall: c.opt.StallAfter, job: c.opt.Job,
	})
	if err != nil {
		return err
	}
	switch code {
	case replyWelcome:
		return nil
	case replyFailed:
		if failure, ok := c.told(detail); ok {
			return failure
		}
	}
	return &RefusedError{Rank: rank, Reason: string(detail), code: code}
}

// introduce is the dialer's side of the handshake.
func introduce(conn net.Conn, token string, h hello) (replyCode, []byte, error) {
	challenge, err := readGreeting(conn)
	if err != nil {
		return 0, nil, err
	}
	body := h.encode()
	sum := dialerMAC(token, challenge, body)
	message := append([]byte{byte(len(body)), byte(len(body) >> 8)}, body...)
	if _, err := conn.Write(append(message, sum...)); err != nil {
		return 0, nil, err
	}
	return readReply(conn, token, sum)
}

// admit says whether a peer that knows the token may connect.
func (c *Communicator) admit(h hello) (replyCode, []byte) {
	switch {
	case h.order != byteOrder():
		return replyMismatch, []byte("other byte order")
	case h.world != c.opt.World:
		return replyMismatch, fmt.Appendf(nil, "World is %d here, %d there", c.opt.World, h.world)
	case h.to != c.opt.Rank:
		return replyMismatch, fmt.Appendf(nil, "this is rank %d, not %d", c.opt.Rank, h.to)
	case h.settings != c.opt.settings():
		return replyMismatch, []byte("the two differ in ChunkBytes, Streams, Table or NoSharedMemory, or in what they know of LocalSize")
	case h.stall != c.opt.StallAfter:
		return replyMismatch, fmt.Appendf(nil, "StallAfter is %v here, %v there", c.opt.StallAfter, h.stall)
	case (h.purpose == forRing || h.purpose == forVigil) && !c.isBehind(h.from):
		return replyMismatch, fmt.Appendf(nil, "rank %d does not dial rank %d", h.from, c.opt.Rank)
	case h.purpose == forShare && !c.isLocal(h.from):
		return replyMismatch, fmt.Appendf(nil, "rank %d is not on the machine of rank %d", h.from, c.opt.Rank)
	case h.stream >= c.opt.Streams:
		return replyMismatch, fmt.Appendf(nil, "stream %d of %d", h.stream, c.opt.Streams)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing.Load(), c.Failed() != nil:
		return replyFailed, c.verdict()
	case h.purpose == forRing && c.admitted[h.from], h.purpose == forDirect && c.lane(h.from).inTaken,
		h.purpose == forWire && c.path(h.from).taken&(1<<h.stream) != 0, h.purpose == forShare && c.sharing[h.from]:
		return replyMismatch, fmt.Appendf(nil, "rank %d is connected already", h.from)
	case h.purpose == forRing:
		c.admitted[h.from] = true
	case h.purpose == forDirect:
		c.lane(h.from).inTaken = true
	case h.purpose == forShare:
		c.sharing[h.from] = true
	case h.purpose == forWire:
		c.path(h.from).taken |= 1 << h.stream
	}
	return replyWelcome, nil
}

// adopt takes over a connection that was admitted; err is what went wrong in
// telling the peer so.
func (c *Communicator) adopt(h hello, conn net.Conn, err error) {
	switch {
	case h.purpose == forProbe:
		_ = conn.Close()
		return
	case h.purpose == forVigil && err != nil:
		waive(conn)
		return
	case h.purpose == forVigil:
		c.holdOn(h.from, conn)
		return
	}
	if err != nil {
		_ = conn.Close()
		c.blame(h.from, err)
		return
	}
	if h.purpose == forRing {
		c.attach(conn, h.from, c.behind)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() || c.Failed() != nil {
		_ = conn.Close()
		return
	}
	if h.purpose == forShare {
		c.shares <- share{h.from, conn} // of as many as there can be
		return
	}
	if h.purpose == forWire {
		if err := c.attachWire(conn, h.from, h.stream); err != nil {
			_ = conn.Close()
			c.tasks.Go(func() { c.Abort(err) }) // it needs mu
		}
		return
	}
	l := c.lane(h.from)
	l.in = conn
	close(l.arrived)
}
