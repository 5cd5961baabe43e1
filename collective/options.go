package collective

import (
	"context"
	"net"
	"time"
)

// Transport makes connections. tcp.Transport and inproc.Listener implement it. It
// must be safe for concurrent use.
//
// Its connections must be reliable and ordered, and must honour deadlines, also
// those set while a call is blocked.
type Transport interface {
	// Addr is what a peer passes to its Dial to reach this transport.
	Addr() string
	Dial(ctx context.Context, addr string) (net.Conn, error)
	// Accept returns the next connection. It fails when ctx ends or after Close.
	Accept(ctx context.Context) (net.Conn, error)
	Close() error
}

// Options describe one rank of one generation. All ranks of a generation must agree
// on all but Rank, Endpoint, Peers and OnFailure; the handshake checks that.
type Options struct {
	// Job and Generation tell this communicator's connections from all others. A
	// generation is used once per endpoint, in ascending order.
	Job        string // 1 to 255 bytes
	Generation uint64
	// Token is the secret of the job. Both ends of each connection prove that they
	// have it, without sending it. Empty means that there is no secret.
	Token string

	Rank, World int

	// Endpoint receives the connections. It is not closed with the communicator.
	Endpoint *Endpoint

	// Peers answers with the address of a rank. It is asked when a connection is
	// needed: for the next rank of the ring at once, for others when Send or Recv
	// first need them. It may block until the address is known or ctx ends, and must
	// be safe for concurrent use. Not needed when World is 1.
	Peers func(ctx context.Context, rank int) (string, error)

	// StallAfter is how long nothing may come from a peer's process while an
	// operation waits for it. Then the peer is lost. Zero means 10 s. Too small:
	// processes that the system does not schedule in time are taken for dead; too
	// large: frozen machines cost more time. Death of a process does not wait for it.
	StallAfter time.Duration

	// ChunkBytes is the size of a message, so that reducing one overlaps with
	// receiving the next. Zero means 256 KiB. At most 64 MiB.
	ChunkBytes int

	// OnFailure, if set, is called once, from a goroutine of the communicator, when it
	// fails after New has returned; also while no operation is running. It must
	// return soon and must not call Close.
	OnFailure func(error)
}

const (
	defaultStallAfter = 10 * time.Second
	defaultChunk      = 256 << 10
	maxChunk          = 64 << 20
	maxWorld          = 1 << 20
)

func (o *Options) validate() error {
	switch {
	case o.Job == "" || len(o.Job) > 255:
		return invalid("Job has %d bytes, not 1 to 255", len(o.Job))
	case o.World < 1 || o.World > maxWorld:
		return invalid("World %d is not within 1 to %d", o.World, maxWorld)
	case o.Rank < 0 || o.Rank >= o.World:
		return invalid("Rank %d is not within 0 to %d", o.Rank, o.World-1)
	case o.Endpoint == nil:
		return invalid("Endpoint is missing")
	case o.Peers == nil && o.World > 1:
		return invalid("Peers is missing")
	case o.StallAfter < 0:
		return invalid("StallAfter %v is negative", o.StallAfter)
	case o.StallAfter > 0 && o.StallAfter < 8*time.Millisecond:
		return invalid("StallAfter %v is below 8ms", o.StallAfter)
	case o.ChunkBytes < 0 || o.ChunkBytes > maxChunk:
		return invalid("ChunkBytes %d is not within 0 to %d", o.ChunkBytes, maxChunk)
	}
	if o.StallAfter == 0 {
		o.StallAfter = defaultStallAfter
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = defaultChunk
	}
	return nil
}
