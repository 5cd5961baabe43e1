package collective

import (
	"context"
	"fmt"
	"hash/fnv"
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

// Options describe one rank of one generation. All ranks of a generation must agree on all
// but Rank, LocalRank, Endpoint, Peers, InlineBytes and OnFailure, and the handshake checks
// that; LocalSize is what the ranks of one machine must agree on, which is not checked.
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
	// operation waits for it. Then the peer is lost. Zero means 11 s. Too small:
	// processes that the system does not schedule in time are taken for dead; too
	// large: frozen machines cost more time. Death of a process does not wait for it.
	StallAfter time.Duration

	// ChunkBytes is the largest message, so that combining one overlaps with receiving
	// the next. Zero means 256 KiB, and 1 MiB from 16 MiB on. At most 64 MiB.
	ChunkBytes int
	// Streams is the number of connections from one rank to another, which take turns:
	// where a single one does not fill the link. Zero means 1. At most 32.
	Streams int
	// Table chooses the algorithm of an operation before the measured one does. See Rule.
	Table []Rule
	// InlineBytes is up to how much data an operation sends and receives on the calling
	// thread alone. Zero means 8 MiB, negative never. Ranks may differ.
	InlineBytes int

	// LocalSize is the number of ranks on this machine; they are adjacent, and this one is
	// number LocalRank of them. They share memory if they can, and operations go machine by
	// machine where that is less to send. Zero means that nothing is known, on all ranks.
	LocalRank, LocalSize int
	// NoSharedMemory has ranks of one machine talk over connections.
	NoSharedMemory bool

	// OnFailure, if set, is called once, from a goroutine of the communicator, when it
	// fails after New has returned; also while no operation is running. It must
	// return soon and must not call Close.
	OnFailure func(error)
}

const (
	defaultStallAfter = 11 * time.Second // a hang is taken for one after 10 s at the earliest, by who sees more of it
	smallChunk        = 256 << 10
	largeChunk        = 1 << 20
	largeOperation    = 16 << 20 // from which on messages are large
	maxChunk          = 64 << 20
	maxStreams        = 32
	defaultInline     = 8 << 20
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
	case o.Streams < 0 || o.Streams > maxStreams:
		return invalid("Streams %d is not within 0 to %d", o.Streams, maxStreams)
	case o.LocalSize < 0 || o.LocalSize > o.World:
		return invalid("LocalSize %d is not within 0 to World %d", o.LocalSize, o.World)
	case o.LocalRank < 0 || o.LocalRank >= max(o.LocalSize, 1):
		return invalid("LocalRank %d is not below LocalSize %d", o.LocalRank, o.LocalSize)
	case o.LocalRank > o.Rank || o.Rank-o.LocalRank+o.LocalSize > o.World:
		return invalid("LocalRank %d of LocalSize %d does not fit Rank %d of World %d", o.LocalRank, o.LocalSize, o.Rank, o.World)
	}
	if err := validateTable(o.Table); err != nil {
		return err
	}
	o.Streams = max(o.Streams, 1)
	if o.InlineBytes == 0 {
		o.InlineBytes = defaultInline
	}
	if o.StallAfter == 0 {
		o.StallAfter = defaultStallAfter
	}
	return nil
}

// settings is a hash of what all ranks must have alike for their plans to fit together.
func (o *Options) settings() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, o.ChunkBytes, o.Streams, o.Table, o.NoSharedMemory, o.LocalSize > 0, o.LocalSize == o.World)
	return h.Sum64()
}

// chunk is the number of elements of a message of an operation on so many bytes, of which
// each takes size on the wire.
func (o *Options) chunk(bytes, size int) int {
	chunk := o.ChunkBytes
	switch {
	case chunk > 0:
	case bytes >= largeOperation:
		chunk = largeChunk
	default:
		chunk = smallChunk
	}
	return max(1, chunk/size)
}
