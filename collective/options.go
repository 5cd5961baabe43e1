package collective

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/internal/frame"
)

// Options describe one rank of one generation. All ranks of a generation must agree on all options
// except Rank, LocalRank, Endpoint, Peers, InlineBytes and OnFailure, which the handshake checks.
// The ranks of one machine must agree on LocalSize, which is not checked.
type Options struct {
	// Job and Generation distinguish this communicator's connections from all others. A generation
	// is used once per endpoint, in ascending order.
	Job        string // 1 to 255 bytes
	Generation uint64
	// Token is the secret of the job. Both ends of each connection prove that they have it, without
	// sending it. Empty means that there is no secret.
	Token string

	Rank, World int

	// Endpoint receives the connections. It is not closed with the communicator.
	Endpoint *Endpoint

	// Peers returns the address of a rank. It is called when a connection is needed: for neighbours
	// in the ring at once, for others when an operation first needs them. It may block until the
	// address is known or ctx ends, and must be safe for concurrent use. Not needed when World is
	// 1.
	Peers func(ctx context.Context, rank int) (string, error)

	// StallAfter is how long nothing may come from a peer's process while an operation waits for
	// it. Then the peer is lost. Zero means 11 s. If it is too small, processes that the system
	// does not schedule in time are taken for dead; if it is too large, frozen machines cost more
	// time. The death of a process is noticed sooner.
	StallAfter time.Duration

	// ChunkBytes is the largest message, so that combining one overlaps with receiving the next.
	// Zero means 256 KiB, and 1 MiB for operations of 16 MiB or more. At most 64 MiB.
	ChunkBytes int
	// Streams is the number of connections from one rank to another, which take turns: for links
	// that a single one does not fill. Zero means 1. At most 32.
	Streams int
	// InlineBytes is the most data that an operation sends or receives on the calling thread alone.
	// Zero means 8 MiB, negative never. Ranks may differ.
	InlineBytes int

	// LocalSize is the number of ranks on this machine. They are adjacent, and this one is number
	// LocalRank of them. They share memory if they can, and operations are divided into intra-node
	// and inter-node parts where that sends less. Zero means that nothing is known, on all ranks.
	LocalRank, LocalSize int
	// NoSharedMemory has ranks of one machine communicate over connections.
	NoSharedMemory bool

	// OnFailure, if set, is called once, from a goroutine of the communicator, when it fails after
	// New has returned, even if no operation is running. It must return soon and must not call
	// Close.
	OnFailure func(error)

	table []exec.Rule // of tests: what it covers, the built-in table does not
}

const defaultInline = 8 << 20

func (o *Options) validate() error {
	switch {
	case o.Job == "" || len(o.Job) > 255:
		return invalid("Job has %d bytes, not 1 to 255", len(o.Job))
	case o.World < 1 || o.World > control.MaxWorld:
		return invalid("World %d is not within 1 to %d", o.World, control.MaxWorld)
	case o.Rank < 0 || o.Rank >= o.World:
		return invalid("Rank %d is not within 0 to %d", o.Rank, o.World-1)
	case o.Endpoint == nil:
		return invalid("Endpoint is missing")
	case o.Endpoint.encrypted && o.Token == "":
		return invalid("Token is empty: an encrypted endpoint derives its keys from it")
	case o.Peers == nil && o.World > 1:
		return invalid("Peers is missing")
	case o.StallAfter < 0:
		return invalid("StallAfter %v is negative", o.StallAfter)
	case o.StallAfter > 0 && o.StallAfter < 8*time.Millisecond:
		return invalid("StallAfter %v is below 8ms", o.StallAfter)
	case o.ChunkBytes < 0 || o.ChunkBytes > frame.MaxMessage:
		return invalid("ChunkBytes %d is not within 0 to %d", o.ChunkBytes, frame.MaxMessage)
	case o.Streams < 0 || o.Streams > control.MaxStreams:
		return invalid("Streams %d is not within 0 to %d", o.Streams, control.MaxStreams)
	case o.LocalSize < 0 || o.LocalSize > o.World:
		return invalid("LocalSize %d is not within 0 to World %d", o.LocalSize, o.World)
	case o.LocalRank < 0 || o.LocalRank >= max(o.LocalSize, 1):
		return invalid("LocalRank %d is not below LocalSize %d", o.LocalRank, o.LocalSize)
	case o.LocalRank > o.Rank || o.Rank-o.LocalRank+o.LocalSize > o.World:
		return invalid("LocalRank %d of LocalSize %d does not fit Rank %d of World %d", o.LocalRank, o.LocalSize, o.Rank, o.World)
	}
	o.Streams = max(o.Streams, 1)
	o.InlineBytes = cmp.Or(o.InlineBytes, defaultInline)
	o.StallAfter = cmp.Or(o.StallAfter, control.DefaultStallAfter)
	return nil
}

// settings is a hash of the options that must be equal on all ranks for their plans to fit
// together.
func (o *Options) settings() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, o.ChunkBytes, o.Streams, o.NoSharedMemory, o.LocalSize > 0, o.LocalSize == o.World)
	return h.Sum64()
}
