package nccl

import (
	"context"
	"fmt"
	"time"
)

// StageOptions describe the way of data between a GPU and the host.
type StageOptions struct {
	// ChunkBytes is how much is handed to the host at a time. Zero: 4 MiB. Small chunks
	// overlap better, large ones cost fewer calls (about 30 µs each way).
	ChunkBytes int
	// Depth is how many chunks are under way. Zero: 3, one each way and one in the host's hands.
	Depth int
	// Memory, if set, is pinned memory to use, such as pages that are shared with the other
	// processes of the node. It must hold Depth chunks. Nil: the stage allocates its own.
	Memory *HostMemory
}

// Stage takes a buffer of the GPU through pinned memory of the host and back, chunk
// by chunk: the way of a reduction whose upper level is not NCCL. Copies down, the
// host's work and copies up overlap. A stage is for one goroutine at a time.
type Stage struct {
	dev      *Device
	memory   *HostMemory
	own      bool
	down, up *Stream
	slots    []slot
	broken   error

	drainAfter time.Duration
}

type slot struct {
	memory   []byte
	down, up uintptr // events behind the slot's last copies
}

// NewStage makes a stage.
func (d *Device) NewStage(ctx context.Context, o StageOptions) (*Stage, error) {
	if o.ChunkBytes < 0 || o.Depth < 0 {
		return nil, invalid("ChunkBytes %d, Depth %d", o.ChunkBytes, o.Depth)
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 4 << 20
	}
	if o.Depth == 0 {
		o.Depth = 3
	}
	s := &Stage{dev: d, memory: o.Memory, own: o.Memory == nil, drainAfter: drainAfter}
	if s.memory != nil && len(s.memory.Bytes) < o.Depth*o.ChunkBytes {
		return nil, invalid("%d bytes of pinned memory for %d chunks of %d", len(s.memory.Bytes), o.Depth, o.ChunkBytes)
	}
	err := func() (err error) {
		if s.own {
			if s.memory, err = d.AllocHost(ctx, o.Depth*o.ChunkBytes); err != nil {
				return err
			}
		}
		if s.down, err = d.NewStream(ctx); err != nil {
			return err
		}
		s.up, err = d.NewStream(ctx)
		return err
	}()
	if err != nil {
		// The end of ctx may be the reason.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainAfter)
		defer cancel()
		_ = s.Close(ctx)
		return nil, fmt.Errorf("stage: %w", err)
	}
	for i := range o.Depth {
		s.slots = append(s.slots, slot{memory: s.memory.Bytes[i*o.ChunkBytes : (i+1)*o.ChunkBytes : (i+1)*o.ChunkBytes]})
	}
	return s, nil
}

// Close frees what the stage holds.
func (s *Stage) Close(ctx context.Context) error {
	var first error
	for _, stream := range []*Stream{s.down, s.up} {
		if stream != nil {
			if err := stream.Close(ctx); err != nil && first == nil {
				first = err
			}
		}
	}
	if s.own && s.memory != nil {
		if err := s.memory.Free(ctx); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Run copies buffer to the host once what is queued on after is done (nil: at once),
// calls exchange for each chunk with its place in the buffer, in order, and copies
// back what exchange left there. It returns when the buffer is whole again, so work
// that is queued later sees it. After an error the buffer holds anything.
func (s *Stage) Run(ctx context.Context, after *Stream, buffer Buffer, exchange func(chunk []byte, offset int) error) error {
	if err := buffer.holds(s.dev, buffer.bytes); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	size := s.size()
	part := func(i int) Buffer { return buffer.Slice(i*size, min((i+1)*size, buffer.bytes)) }
	return s.travel(ctx, after, (buffer.bytes+size-1)/size, func(i int) trip {
		there := []piece{{part(i), 0}}
		return trip{there, there}
	}, func(i int, slot []byte) error { return exchange(slot[:part(i).bytes], i*size) })
}

// size is the bytes of a slot.
func (s *Stage) size() int { return len(s.slots[0].memory) }

// drainAfter is the longest that copies may take which are under way when a run fails, and
// what frees a stage that could not be made. Copies wait for the work before them on the
// GPU, which whoever makes it fail ends.
const drainAfter = 10 * time.Second

// drain lets copies end that are under way, for the memory may be freed next. If
// they do not, the stage is of no use any more.
func (s *Stage) drain(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drainAfter)
	defer cancel()
	for _, stream := range []*Stream{s.down, s.up} {
		if err := stream.Wait(ctx); err != nil {
			s.broken = fmt.Errorf("%w; and its copies do not end: %w", cause, err)
			return s.broken
		}
	}
	// An error leaves the events to the device, which frees them when it is closed.
	_ = s.dev.do(ctx, "stage", func() error {
		for i := range s.slots {
			for _, event := range []*uintptr{&s.slots[i].down, &s.slots[i].up} {
				if *event != 0 {
					s.dev.free(*event)
					*event = 0
				}
			}
		}
		return nil
	})
	return cause
}
