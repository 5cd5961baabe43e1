package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/shm"
)

// A large message to a rank that can read this one's memory is not sent. The index of its header is
// then byAddress; its address (u64) follows, and the receiver answers with one byte when it has
// read the message.
const (
	byAddress     = 1
	byAddressFrom = 256 << 10 // bytes from which on the answer is worth waiting for
)

// streamBytes is the most that is transferred by one call.
const streamBytes = 1 << 20

// p2pPeer is another rank, for the messages of one origin.
type p2pPeer struct {
	rank   int
	origin uint8
}

// p2pConns are the point-to-point connections between this rank and one other. The sender dials, so
// there is one connection per direction.
type p2pConns struct {
	sending, receiving chan struct{} // held by the call that uses the direction

	out      net.Conn // set by the holder of sending, under the table's mu
	sent     uint64
	in       net.Conn // set before arrived is closed
	arrived  chan struct{}
	received uint64
}

type p2p struct {
	session *control.Session
	local   *localGroup
	cfg     *Config

	mu    sync.Mutex
	peers map[p2pPeer]*p2pConns
}

// peer returns the connections with a rank. The caller holds mu.
func (x *p2p) peer(id p2pPeer) *p2pConns {
	p := x.peers[id]
	if p == nil {
		p = &p2pConns{
			sending: make(chan struct{}, 1), receiving: make(chan struct{}, 1),
			arrived: make(chan struct{}),
		}
		x.peers[id] = p
	}
	return p
}

func (x *p2p) adopt(from p2pPeer, conn net.Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.session.Usable() != nil {
		_ = conn.Close()
		return
	}
	p := x.peer(from)
	p.in = conn
	close(p.arrived)
}

// close breaks all connections, which ends the calls that use them.
func (x *p2p) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.peers {
		for _, conn := range []net.Conn{p.in, p.out} {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
}

// Send sends p to a rank that calls Recv with the same length. It returns when p may be reused.
func (e *Engine) Send(ctx context.Context, origin uint8, to int, p []byte) error {
	x := &e.p2p
	end, l, err := x.begin(ctx, p2pPeer{to, origin}, func(l *p2pConns) chan struct{} { return l.sending })
	if err != nil {
		return err
	}
	defer end()
	if l.out == nil {
		conn, err := x.session.Open(ctx, to, control.PurposeDirect, int(origin))
		if err != nil {
			return x.session.FailConn(to, err)
		}
		x.mu.Lock()
		l.out = conn
		ended := x.session.Usable() != nil // not Context, which ends after Interrupt
		x.mu.Unlock()
		if ended {
			_ = conn.Close()
			return x.session.Ended()
		}
	}
	defer x.session.AbortOnDone(ctx)()
	l.sent++
	var b [frame.HeaderLen]byte
	h := frame.Header{Kind: frame.Direct, Op: message(p, origin, l.sent)}
	inPlace := len(p) >= byAddressFrom && x.local.canRead(to)
	if inPlace {
		h.Index = byAddress
	}
	h.Put(b[:])
	err = x.stream(ctx, to, b[:], l.out.Write, l.out.SetWriteDeadline)
	switch {
	case err != nil:
	case inPlace:
		err = x.sendAddress(ctx, to, l, p)
		runtime.KeepAlive(p)
	default:
		err = x.stream(ctx, to, p, l.out.Write, l.out.SetWriteDeadline)
	}
	if err != nil {
		return x.session.FailConn(to, err)
	}
	return nil
}

// Recv fills p with the next message of a rank, which must have the same length.
func (e *Engine) Recv(ctx context.Context, origin uint8, from int, p []byte) error {
	x := &e.p2p
	end, l, err := x.begin(ctx, p2pPeer{from, origin}, func(l *p2pConns) chan struct{} { return l.receiving })
	if err != nil {
		return err
	}
	defer end()
	defer x.session.AbortOnDone(ctx)()
	if err := x.session.AwaitDial(from, l.arrived, nil); err != nil {
		return x.session.FailConn(from, err)
	}
	l.received++
	var b [frame.HeaderLen]byte
	if err := x.stream(ctx, from, b[:], l.in.Read, l.in.SetReadDeadline); err != nil {
		return x.session.FailConn(from, err)
	}
	h, err := frame.Parse(b[:])
	if err != nil {
		return x.session.FailConn(from, err)
	}
	if h.Kind != frame.Direct || h.Op != message(p, origin, l.received) {
		x.session.Diverged(from, fmt.Sprintf("Recv of %d bytes", len(p)), h.Op.String())
		return x.session.Ended()
	}
	if h.Index == byAddress {
		err = x.recvByAddress(ctx, from, l, p)
	} else {
		err = x.stream(ctx, from, p, l.in.Read, l.in.SetReadDeadline)
	}
	if err != nil {
		return x.session.FailConn(from, err)
	}
	return nil
}

func message(p []byte, origin uint8, seq uint64) frame.Descriptor {
	return frame.Descriptor{Method: frame.Send, Type: kernel.Uint8, Origin: origin, Count: uint64(len(p)), Seq: seq}
}

// begin takes one direction of the connections with a rank.
func (x *p2p) begin(ctx context.Context, peer p2pPeer, side func(*p2pConns) chan struct{}) (end func(), l *p2pConns, err error) {
	if rank := peer.rank; rank < 0 || rank >= x.cfg.World || rank == x.cfg.Rank {
		return nil, nil, control.Invalid("rank %d is not another one of %d ranks", rank, x.cfg.World)
	}
	if err := x.session.Usable(); err != nil {
		return nil, nil, err
	}
	x.mu.Lock()
	l = x.peer(peer)
	x.mu.Unlock()
	held := side(l)
	select {
	case held <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-x.session.Context().Done():
		return nil, nil, x.session.Ended()
	}
	if err = context.Cause(ctx); err == nil {
		x.session.BeginWait()
		if err = x.session.Usable(); err == nil {
			return func() { x.session.EndWait(); <-held }, l, nil
		}
		x.session.EndWait()
	}
	<-held
	return nil, nil, err
}

// stream transfers all of p with transfer, a Read or a Write. When nothing moves for half the stall
// limit it probes whether the peer's process is alive, which has the other half.
func (x *p2p) stream(ctx context.Context, rank int, p []byte, transfer func([]byte) (int, error), deadline func(time.Time) error) error {
	for len(p) > 0 {
		_ = deadline(time.Now().Add(x.cfg.StallAfter / 2))
		if x.session.Context().Err() != nil {
			return x.session.Ended()
		}
		n, err := transfer(p[:min(len(p), streamBytes)])
		p = p[n:]
		if err == nil || len(p) == 0 {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if n == 0 {
			if err := x.session.Probe(ctx, rank); err != nil {
				return x.session.OrContext(ctx, err)
			}
		}
	}
	return nil
}

// sendAddress has a rank read p, and returns when it has.
func (x *p2p) sendAddress(ctx context.Context, to int, l *p2pConns, p []byte) error {
	address := binary.LittleEndian.AppendUint64(nil, shm.Address(p))
	if err := x.stream(ctx, to, address, l.out.Write, l.out.SetWriteDeadline); err != nil {
		return err
	}
	var done [1]byte
	return x.stream(ctx, to, done[:], l.out.Read, l.out.SetReadDeadline)
}

// recvByAddress reads a message of which a rank sends the address.
func (x *p2p) recvByAddress(ctx context.Context, from int, l *p2pConns, p []byte) error {
	var address [8]byte
	if err := x.stream(ctx, from, address[:], l.in.Read, l.in.SetReadDeadline); err != nil {
		return err
	}
	if !x.local.canRead(from) {
		return fmt.Errorf("%w: rank %d sends the address of memory that cannot be read", frame.ErrMalformed, from)
	}
	if err := x.local.read(from, binary.LittleEndian.Uint64(address[:]), p); err != nil {
		return err
	}
	return x.stream(ctx, from, []byte{1}, l.in.Write, l.in.SetWriteDeadline)
}
