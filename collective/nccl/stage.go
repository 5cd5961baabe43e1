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
	s := &Stage{dev: d, memory: o.Memory, own: o.Memory == nil}
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
	if s.broken != nil {
		return s.broken
	}
	if err := buffer.holds(s.dev, buffer.bytes); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	if after != nil && after.dev != s.dev {
		return invalid("the stream is on device %d, not on %d", after.dev.ordinal, s.dev.ordinal)
	}
	if err := s.run(ctx, after, buffer, exchange); err != nil {
		return s.drain(ctx, fmt.Errorf("stage: %w", err))
	}
	return nil
}

func (s *Stage) run(ctx context.Context, after *Stream, buffer Buffer, exchange func([]byte, int) error) error {
	d, size := s.dev, len(s.slots[0].memory)
	chunks := (buffer.bytes + size - 1) / size
	piece := func(i int) (*slot, []byte) {
		at := &s.slots[i%len(s.slots)]
		return at, at.memory[:min(size, buffer.bytes-i*size)]
	}
	// fetch queues the copy down of a chunk; its slot's last copy up comes first.
	fetch := func(i int) error {
		at, memory := piece(i)
		if at.up != 0 {
			event := at.up
			at.up = 0
			defer d.free(event)
			if err := d.lib.driverError("cuStreamWaitEvent", d.lib.cuda.StreamWaitEvent(s.down.handle, event, 0)); err != nil {
				return err
			}
		}
		if at.down != 0 { // of a run that failed
			d.free(at.down)
			at.down = 0
		}
		err := d.toHost(s.down.handle, memory, buffer.pointer+uintptr(i*size))
		if err == nil {
			at.down, err = d.mark(s.down.handle)
		}
		return err
	}
	err := d.do(ctx, "stage", func() error {
		if after != nil {
			if err := d.order(s.down.handle, after.handle); err != nil {
				return err
			}
		}
		for i := range min(chunks, len(s.slots)) {
			if err := fetch(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range chunks {
		at, memory := piece(i)
		if err := s.pass(ctx, &at.down); err != nil {
			return err
		}
		if err := exchange(memory, i*size); err != nil {
			return err
		}
		err := d.do(ctx, "stage", func() (err error) {
			if err = d.toDevice(s.up.handle, buffer.pointer+uintptr(i*size), memory); err != nil {
				return err
			}
			if at.up, err = d.mark(s.up.handle); err == nil && i+len(s.slots) < chunks {
				err = fetch(i + len(s.slots))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for i := range s.slots {
		if err := s.pass(ctx, &s.slots[i].up); err != nil {
			return err
		}
	}
	return nil
}

// pass waits for an event of the stage, if there is one, and gives it back.
func (s *Stage) pass(ctx context.Context, event *uintptr) error {
	if *event == 0 {
		return nil
	}
	return s.dev.poll(ctx, "copy", func() (bool, error) {
		done, err := s.dev.passed(*event)
		if done {
			s.dev.free(*event)
			*event = 0
		}
		return done, err
	})
}

// drain lets copies end that are under way, for the memory may be freed next. If
// they do not, the stage is of no use any more.
func (s *Stage) drain(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, stream := range []*Stream{s.down, s.up} {
		if err := stream.Wait(ctx); err != nil {
			s.broken = fmt.Errorf("%w; and its copies do not end: %w", cause, err)
			return s.broken
		}
	}
	return cause
}
