package nccl

import (
	"context"
	"fmt"
	"unsafe"
)

// Stream is a queue of work of one GPU.
type Stream struct {
	dev    *Device
	handle uintptr
	own    bool
}

// NewStream returns a stream that does not wait for CUDA's default stream.
func (d *Device) NewStream(ctx context.Context) (*Stream, error) {
	s := &Stream{dev: d, own: true}
	err := d.do(ctx, "cuStreamCreate", func() (err error) {
		s.handle, err = d.newStream()
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (d *Device) newStream() (handle uintptr, err error) {
	return handle, d.lib.driverError("cuStreamCreate", d.lib.cuda.StreamCreate(&handle, streamNonBlocking))
}

// StreamOf returns a stream of this device that is owned elsewhere, such as
// torch.cuda.current_stream().cuda_stream. 0 is CUDA's default stream.
func (d *Device) StreamOf(handle uintptr) *Stream { return &Stream{dev: d, handle: handle} }

// Close destroys a stream of NewStream, once its work is done; it does not wait.
func (s *Stream) Close(ctx context.Context) error {
	if !s.own {
		return nil
	}
	return s.dev.call(ctx, "cuStreamDestroy", func(c *cudaCalls) int32 { return c.StreamDestroy(s.handle) })
}

// isOn checks the device of a stream; nil is on every device.
func (s *Stream) isOn(d *Device) error {
	if s != nil && s.dev != d {
		return invalid("the stream is on device %d, not on %d", s.dev.ordinal, d.ordinal)
	}
	return nil
}

// Wait returns when all that was queued so far is done.
func (s *Stream) Wait(ctx context.Context) error {
	d := s.dev
	return d.poll(ctx, "cuStreamQuery", func() (bool, error) {
		code := d.lib.cuda.StreamQuery(s.handle)
		if code == cudaNotReady {
			return false, nil
		}
		return code == cudaSuccess, d.lib.driverError("cuStreamQuery", code)
	})
}

// ToHost queues a copy into to, which must be pinned (HostMemory) and stay untouched until
// it is done. Copies at most len(to) bytes; from must hold as many.
func (s *Stream) ToHost(ctx context.Context, to []byte, from Buffer) error {
	if err := from.holds(s.dev, len(to)); err != nil || len(to) == 0 {
		return err
	}
	return s.dev.do(ctx, "cuMemcpyDtoHAsync", func() error { return s.dev.toHost(s.handle, to, from.pointer) })
}

// ToDevice queues a copy of from, which must be pinned (HostMemory) and stay unchanged until it is
// done.
func (s *Stream) ToDevice(ctx context.Context, to Buffer, from []byte) error {
	if err := to.holds(s.dev, len(from)); err != nil || len(from) == 0 {
		return err
	}
	return s.dev.do(ctx, "cuMemcpyHtoDAsync", func() error { return s.dev.toDevice(s.handle, to.pointer, from) })
}

// Copy queues a copy of all of from into the beginning of to.
func (s *Stream) Copy(ctx context.Context, to, from Buffer) error {
	if err := to.holds(s.dev, from.bytes); err != nil {
		return err
	}
	if err := from.holds(s.dev, from.bytes); err != nil || from.bytes == 0 {
		return err
	}
	return s.dev.call(ctx, "cuMemcpyDtoDAsync", func(c *cudaCalls) int32 {
		return c.MemcpyDtoD(to.pointer, from.pointer, uintptr(from.bytes), s.handle)
	})
}

// Event is the end of what was queued on a stream when Mark was called. Nil stands for nothing, and
// costs nothing.
type Event struct {
	dev    *Device
	handle uintptr // 0 = freed; used on the device's thread
}

// Mark returns the end of the work queued on s now, nil if s is nil.
func (d *Device) Mark(ctx context.Context, s *Stream) (*Event, error) {
	if err := s.isOn(d); err != nil || s == nil {
		return nil, err
	}
	e := &Event{dev: d}
	err := d.do(ctx, "cuEventRecord", func() (err error) {
		e.handle, err = d.mark(s.handle)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Before makes the work queued on s from now on wait for the event, and frees it.
func (e *Event) Before(ctx context.Context, s *Stream) error {
	if e == nil {
		return nil
	}
	return e.dev.do(ctx, "cuStreamWaitEvent", func() error {
		defer e.drop()
		return e.dev.await(s.handle, e.handle)
	})
}

// Free frees an event that nothing will wait for.
func (e *Event) Free(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.dev.do(ctx, "free an event", func() error {
		e.drop()
		return nil
	})
}

// What follows runs on the device's thread.

func (e *Event) drop() {
	if e.handle != 0 {
		e.dev.free(e.handle)
		e.handle = 0
	}
}

func (d *Device) toHost(stream uintptr, to []byte, from uintptr) error {
	code := d.lib.cuda.MemcpyDtoH(unsafe.Pointer(unsafe.SliceData(to)), from, uintptr(len(to)), stream)
	return d.lib.driverError("cuMemcpyDtoHAsync", code)
}

func (d *Device) toDevice(stream, to uintptr, from []byte) error {
	code := d.lib.cuda.MemcpyHtoD(to, unsafe.Pointer(unsafe.SliceData(from)), uintptr(len(from)), stream)
	return d.lib.driverError("cuMemcpyHtoDAsync", code)
}

// order makes later wait for the work queued on earlier now. The event can be reused at once: a
// queued wait keeps what it waits for.
func (d *Device) order(later, earlier uintptr) error {
	event, err := d.mark(earlier)
	if err != nil {
		return err
	}
	defer d.free(event)
	return d.await(later, event)
}

// await makes the work queued on a stream from now on wait for an event.
func (d *Device) await(stream, event uintptr) error {
	return d.lib.driverError("cuStreamWaitEvent", d.lib.cuda.StreamWaitEvent(stream, event, 0))
}

// mark records an event after the work queued on a stream.
func (d *Device) mark(stream uintptr) (event uintptr, err error) {
	c := &d.lib.cuda
	if n := len(d.idle); n > 0 {
		event, d.idle = d.idle[n-1], d.idle[:n-1]
	} else if err := d.lib.driverError("cuEventCreate", c.EventCreate(&event, eventNoTiming)); err != nil {
		return 0, err
	} else {
		d.events = append(d.events, event)
	}
	if err := d.lib.driverError("cuEventRecord", c.EventRecord(event, stream)); err != nil {
		d.free(event)
		return 0, fmt.Errorf("device %d: %w", d.ordinal, err)
	}
	return event, nil
}

func (d *Device) passed(event uintptr) (bool, error) {
	code := d.lib.cuda.EventQuery(event)
	if code == cudaNotReady {
		return false, nil
	}
	return code == cudaSuccess, d.lib.driverError("cuEventQuery", code)
}

// free returns an event for reuse.
func (d *Device) free(event uintptr) { d.idle = append(d.idle, event) }
