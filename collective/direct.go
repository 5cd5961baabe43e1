package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/regroup-io/regroup/collective/kernel"
)

// lane holds the direct connections between this rank and one other. The sender
// dials, so there is one connection per direction.
type lane struct {
	sending, receiving chan struct{} // held by the call that uses the direction

	out     net.Conn // set by the holder of sending, under mu
	sent    uint64
	in      net.Conn // set before arrived is closed
	inTaken bool     // guarded by mu
	arrived chan struct{}
	got     uint64
}

// lane returns the lane to a rank. The caller holds mu.
func (c *Communicator) lane(rank int) *lane {
	l := c.lanes[rank]
	if l == nil {
		l = &lane{
			sending: make(chan struct{}, 1), receiving: make(chan struct{}, 1),
			arrived: make(chan struct{}),
		}
		c.lanes[rank] = l
	}
	return l
}

// closeLanes breaks all direct connections, which ends the calls that use them.
func (c *Communicator) closeLanes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		for _, conn := range []net.Conn{l.in, l.out} {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
}

// Send passes p to a rank that calls Recv with the same length. It returns when p
// may be reused, which is not yet a promise that the peer has it. Messages between
// two ranks keep their order. It opens a connection when first used and streams in
// chunks: p may be large. A peer that is slow to call Recv is waited for as long
// as its process answers. A large message to a rank of the same machine is read by it in
// place, so Send returns when Recv has it.
func (c *Communicator) Send(ctx context.Context, to int, p []byte) error {
	end, l, err := c.enter(ctx, to, func(l *lane) chan struct{} { return l.sending })
	if err != nil {
		return err
	}
	defer end()
	if l.out == nil {
		conn, err := c.open(ctx, to, forDirect, 0)
		if err != nil {
			return c.directFailure(to, err)
		}
		c.mu.Lock()
		l.out = conn
		dead := c.closing.Load() || c.Failed() != nil // and not life, see outgoing
		c.mu.Unlock()
		if dead {
			_ = conn.Close()
			return c.ended()
		}
	}
	defer c.watch(ctx)()
	l.sent++
	var b [headLen]byte
	h := head{kind: frameDirect, call: call{method: direct, dtype: kernel.Uint8, count: uint64(len(p)), seq: l.sent}}
	whole := len(p) >= handOverFrom && c.readsMemory(to)
	if whole {
		h.index = handedOver
	}
	h.put(b[:])
	err = c.stream(ctx, to, b[:], l.out.Write, l.out.SetWriteDeadline)
	switch {
	case err != nil:
	case whole:
		err = c.handOver(ctx, to, l, p)
		runtime.KeepAlive(p)
	default:
		err = c.stream(ctx, to, p, l.out.Write, l.out.SetWriteDeadline)
	}
	if err != nil {
		return c.directFailure(to, err)
	}
	return nil
}

// Recv fills p with the next message of a rank, which must have the same length;
// another length is a *DivergedError on all ranks.
func (c *Communicator) Recv(ctx context.Context, from int, p []byte) error {
	end, l, err := c.enter(ctx, from, func(l *lane) chan struct{} { return l.receiving })
	if err != nil {
		return err
	}
	defer end()
	defer c.watch(ctx)()
	if err := c.arrival(from, l.arrived, nil); err != nil {
		return c.directFailure(from, err)
	}
	l.got++
	var b [headLen]byte
	if err := c.stream(ctx, from, b[:], l.in.Read, l.in.SetReadDeadline); err != nil {
		return c.directFailure(from, err)
	}
	h, err := parseHead(b[:])
	if err != nil {
		return c.directFailure(from, err)
	}
	want := call{method: direct, dtype: kernel.Uint8, count: uint64(len(p)), seq: l.got}
	if h.kind != frameDirect || h.call != want {
		c.fail(&DivergedError{
			Generation: c.opt.Generation, Rank: c.opt.Rank, Peer: from,
			Mine: fmt.Sprintf("Recv of %d bytes", len(p)), Theirs: h.call.String(),
		})
		return c.ended()
	}
	if h.index == handedOver {
		err = c.takeOver(ctx, from, l, p)
	} else {
		err = c.stream(ctx, from, p, l.in.Read, l.in.SetReadDeadline)
	}
	if err != nil {
		return c.directFailure(from, err)
	}
	return nil
}

// enter takes one direction of a lane.
func (c *Communicator) enter(ctx context.Context, rank int, side func(*lane) chan struct{}) (func(), *lane, error) {
	if rank < 0 || rank >= c.opt.World || rank == c.opt.Rank {
		return nil, nil, invalid("rank %d is not another one of %d ranks", rank, c.opt.World)
	}
	if err := c.gate(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	l := c.lane(rank)
	c.mu.Unlock()
	hold := side(l)
	select {
	case hold <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-c.life.Done():
		return nil, nil, c.ended()
	}
	err := context.Cause(ctx)
	if err == nil {
		c.beginToWait()
		if err = c.gate(); err == nil {
			return func() { c.busy.Add(-1); <-hold }, l, nil
		}
		c.busy.Add(-1)
	}
	<-hold
	return nil, nil, err
}

// directFailure turns an error of a direct connection into the communicator's failure.
func (c *Communicator) directFailure(rank int, err error) error {
	switch {
	case c.life.Err() != nil:
	case isVerdict(err):
		c.fail(err)
	case errors.Is(err, ErrRefused), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), exhausted(err):
		c.Abort(err)
	default:
		c.blame(rank, err)
	}
	return c.ended()
}

// stream moves all of p with move, a Read or a Write. When nothing moves for half
// the stall limit it asks whether the peer's process lives, which has the other half.
func (c *Communicator) stream(ctx context.Context, rank int, p []byte, move func([]byte) (int, error), deadline func(time.Time) error) error {
	for len(p) > 0 {
		_ = deadline(time.Now().Add(c.opt.StallAfter / 2))
		if c.life.Err() != nil {
			return c.ended()
		}
		n, err := move(p[:min(len(p), largeChunk)])
		p = p[n:]
		if err == nil || len(p) == 0 {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if n == 0 {
			if err := c.probe(ctx, rank); err != nil {
				return c.unlessOver(ctx, err)
			}
		}
	}
	return nil
}

// probe asks a rank's endpoint for a sign of life. A rank that has left the
// generation counts as lost.
func (c *Communicator) probe(ctx context.Context, rank int) error {
	limit, cancel := context.WithTimeoutCause(ctx, c.opt.StallAfter/2, ErrSilent)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	conn, err := c.dial(limit, rank, forProbe, 0)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	var no *RefusedError
	if errors.As(err, &no) && no.code == replyEarly {
		return nil
	}
	if isVerdict(err) || c.life.Err() != nil || ctx.Err() != nil {
		return err
	}
	return c.lost(rank, err)
}
