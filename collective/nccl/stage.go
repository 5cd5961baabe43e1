package nccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// StageOptions describe the path of data between a GPU and the host.
type StageOptions struct {
	// ChunkBytes is how much is passed to the host at a time. Zero: 4 MiB. Small chunks overlap
	// better, large ones cost fewer calls (about 30 µs in each direction).
	ChunkBytes int
	// Depth is how many chunks are in flight. Zero: 3, one in each direction and one on the host.
	Depth int
	// DrainAfter is how long running copies may take to end when a run fails. Zero: 10 s. Copies
	// wait for earlier work on the GPU, which the failing caller ends.
	DrainAfter time.Duration
}

// Stage copies a buffer of the GPU through pinned host memory and back, chunk by chunk, for a
// reduction whose upper level is not NCCL. Copies down, the host's work and copies up overlap. A
// stage is for one goroutine at a time.
type Stage struct {
	dev      *Device
	memory   *HostMemory
	down, up *Stream
	slots    []slot
	broken   error
	opt      StageOptions
}

type slot struct {
	memory   []byte
	down, up uintptr // events after the slot's last copies
}

// NewStage returns a new stage.
func (d *Device) NewStage(ctx context.Context, o StageOptions) (*Stage, error) {
	if o.ChunkBytes < 0 || o.Depth < 0 || o.DrainAfter < 0 {
		return nil, invalid("ChunkBytes %d, Depth %d, DrainAfter %v", o.ChunkBytes, o.Depth, o.DrainAfter)
	}
	o.ChunkBytes = cmp.Or(o.ChunkBytes, 4<<20)
	o.Depth = cmp.Or(o.Depth, 3)
	o.DrainAfter = cmp.Or(o.DrainAfter, 10*time.Second)
	s := &Stage{dev: d, opt: o}
	err := func() (err error) {
		if s.memory, err = d.AllocHost(ctx, o.Depth*o.ChunkBytes); err != nil {
			return err
		}
		if s.down, err = d.NewStream(ctx); err != nil {
			return err
		}
		s.up, err = d.NewStream(ctx)
		return err
	}()
	if err != nil {
		// The end of ctx may be the reason.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.DrainAfter)
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
	var err error
	for _, stream := range []*Stream{s.down, s.up} {
		if stream != nil {
			err = errors.Join(err, stream.Close(ctx))
		}
	}
	if s.memory != nil {
		err = errors.Join(err, s.memory.Free(ctx))
	}
	return err
}

// Run copies buffer to the host once the work queued on after is done (nil: at once), calls
// exchange for each chunk with its offset in the buffer, in order, and copies back what exchange
// left there.
// An empty buffer is one empty chunk. It returns when the buffer is whole again, so work that is
// queued later sees it. After an error the contents of the buffer are undefined.
func (s *Stage) Run(ctx context.Context, after *Stream, buffer Buffer, exchange func(chunk []byte, offset int) error) error {
	if err := buffer.holds(s.dev, buffer.bytes); err != nil {
		return fmt.Errorf("stage: %w", err)
	}
	size := s.opt.ChunkBytes
	return s.Transfer(ctx, after, max(1, (buffer.bytes+size-1)/size), func(i int) SlotTransfer {
		there := []Piece{{buffer.Chunk(i, size), 0}}
		return SlotTransfer{there, there}
	}, func(i int, slot []byte) error { return exchange(slot[:buffer.Chunk(i, size).bytes], i*size) })
}

// ChunkBytes is how much is passed to the host at a time: the size of a slot.
func (s *Stage) ChunkBytes() int { return s.opt.ChunkBytes }

// Broken is why the stage cannot be used any more, or nil: copies of a run that failed did not end.
func (s *Stage) Broken() error { return s.broken }

// drain waits for running copies, because the memory may be freed next. If they do not end, the
// stage cannot be used any more.
func (s *Stage) drain(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.DrainAfter)
	defer cancel()
	for _, stream := range []*Stream{s.down, s.up} {
		if err := stream.Wait(ctx); err != nil {
			s.broken = fmt.Errorf("%w; and its copies do not end: %w", cause, err)
			return s.broken
		}
	}
	// After an error the device keeps the events, and frees them when it is closed.
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

// Piece is a part of the GPU's memory, and its offset in a slot of a stage.
type Piece struct {
	Buffer Buffer
	At     int
}

// SlotTransfer is one transfer through a slot: down from the GPU, through the host, and up again.
// Both directions may be empty, and need not use the same memory.
type SlotTransfer struct{ Down, Up []Piece }

// Transfer performs n slot transfers. Like Run, it calls exchange for each of them, in order, with
// its whole slot, and runs after what was queued on after. pieces is called twice for each and must
// return the same. After an error the destination memory is undefined, and no copy to it is
// running.
func (s *Stage) Transfer(ctx context.Context, after *Stream, n int, pieces func(i int) SlotTransfer, exchange func(i int, slot []byte) error) error {
	if s.broken != nil {
		return s.broken
	}
	if err := after.isOn(s.dev); err != nil {
		return err
	}
	if err := s.run(ctx, after, n, pieces, exchange); err != nil {
		return s.drain(ctx, fmt.Errorf("stage: %w", err))
	}
	return nil
}

func (s *Stage) run(ctx context.Context, after *Stream, n int, pieces func(int) SlotTransfer, exchange func(int, []byte) error) error {
	d := s.dev
	slot := func(i int) *slot { return &s.slots[i%len(s.slots)] }
	err := d.do(ctx, "stage", func() error {
		if after != nil {
			if err := d.order(s.down.handle, after.handle); err != nil {
				return err
			}
		}
		for i := range min(n, len(s.slots)) {
			if err := s.copyDown(slot(i), pieces(i).Down); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range n {
		at := slot(i)
		if err := s.awaitEvent(ctx, &at.down); err != nil {
			return err
		}
		if err := exchange(i, at.memory); err != nil {
			return err
		}
		err := d.do(ctx, "stage", func() error {
			if err := s.copyUp(at, pieces(i).Up); err != nil {
				return err
			}
			if i+len(s.slots) < n {
				return s.copyDown(at, pieces(i+len(s.slots)).Down)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range s.slots {
		if err := s.awaitEvent(ctx, &s.slots[i].up); err != nil {
			return err
		}
	}
	return nil
}

// copyDown queues the copies down to a slot, after its last ones up. It runs on the device's
// thread.
func (s *Stage) copyDown(at *slot, pieces []Piece) (err error) {
	d := s.dev
	if at.up != 0 {
		event := at.up
		at.up = 0
		defer d.free(event)
		if err := d.await(s.down.handle, event); err != nil {
			return err
		}
	}
	for _, p := range pieces {
		if p.Buffer.bytes == 0 {
			continue
		}
		if err := d.toHost(s.down.handle, at.memory[p.At:p.At+p.Buffer.bytes], p.Buffer.pointer); err != nil {
			return err
		}
	}
	at.down, err = d.mark(s.down.handle)
	return err
}

// copyUp queues the copies up from a slot. It runs on the device's thread.
func (s *Stage) copyUp(at *slot, pieces []Piece) (err error) {
	d := s.dev
	for _, p := range pieces {
		if p.Buffer.bytes == 0 {
			continue
		}
		if err := d.toDevice(s.up.handle, p.Buffer.pointer, at.memory[p.At:p.At+p.Buffer.bytes]); err != nil {
			return err
		}
	}
	at.up, err = d.mark(s.up.handle)
	return err
}

// awaitEvent waits for an event of the stage, if there is one, and frees it.
func (s *Stage) awaitEvent(ctx context.Context, event *uintptr) error {
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
