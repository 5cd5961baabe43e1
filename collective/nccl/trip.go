package nccl

import (
	"context"
	"fmt"
)

// piece is a part of the GPU's memory, and where it lies in a slot of a stage.
type piece struct {
	buffer Buffer
	at     int
}

// trip is what goes through one slot: down from the GPU, through the host's hands, and up
// again. Both ways may be empty, and need not be of the same memory.
type trip struct{ down, up []piece }

// travel makes n trips, like Run: exchange is called for each of them, in order, with its
// whole slot, and behind what was queued on after. trip must say the same twice. After an
// error the memory that goes up holds anything, and nothing is on its way to it.
func (s *Stage) travel(ctx context.Context, after *Stream, n int, trip func(int) trip, exchange func(i int, slot []byte) error) error {
	if s.broken != nil {
		return s.broken
	}
	if after != nil && after.dev != s.dev {
		return invalid("the stream is on device %d, not on %d", after.dev.ordinal, s.dev.ordinal)
	}
	if err := s.run(ctx, after, n, trip, exchange); err != nil {
		return s.drain(ctx, fmt.Errorf("stage: %w", err))
	}
	return nil
}

func (s *Stage) run(ctx context.Context, after *Stream, n int, trip func(int) trip, exchange func(int, []byte) error) error {
	d := s.dev
	slot := func(i int) *slot { return &s.slots[i%len(s.slots)] }
	err := d.do(ctx, "stage", func() error {
		if after != nil {
			if err := d.order(s.down.handle, after.handle); err != nil {
				return err
			}
		}
		for i := range min(n, len(s.slots)) {
			if err := s.fetch(slot(i), trip(i).down); err != nil {
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
		if err := s.pass(ctx, &at.down); err != nil {
			return err
		}
		if err := exchange(i, at.memory); err != nil {
			return err
		}
		err := d.do(ctx, "stage", func() error {
			if err := s.deliver(at, trip(i).up); err != nil {
				return err
			}
			if i+len(s.slots) < n {
				return s.fetch(at, trip(i+len(s.slots)).down)
			}
			return nil
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

// fetch queues the copies down to a slot; its last ones up come first. On the device's thread.
func (s *Stage) fetch(at *slot, pieces []piece) (err error) {
	d := s.dev
	if at.up != 0 {
		event := at.up
		at.up = 0
		defer d.free(event)
		if err := d.lib.driverError("cuStreamWaitEvent", d.lib.cuda.StreamWaitEvent(s.down.handle, event, 0)); err != nil {
			return err
		}
	}
	for _, p := range pieces {
		if p.buffer.bytes == 0 {
			continue
		}
		if err := d.toHost(s.down.handle, at.memory[p.at:p.at+p.buffer.bytes], p.buffer.pointer); err != nil {
			return err
		}
	}
	at.down, err = d.mark(s.down.handle)
	return err
}

// deliver queues the copies up from a slot. On the device's thread.
func (s *Stage) deliver(at *slot, pieces []piece) (err error) {
	d := s.dev
	for _, p := range pieces {
		if p.buffer.bytes == 0 {
			continue
		}
		if err := d.toDevice(s.up.handle, p.buffer.pointer, at.memory[p.at:p.at+p.buffer.bytes]); err != nil {
			return err
		}
	}
	at.up, err = d.mark(s.up.handle)
	return err
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
