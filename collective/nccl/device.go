package nccl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// DeviceInfo describes a GPU that this process may use. CUDA_VISIBLE_DEVICES determines which those
// are, and their order.
type DeviceInfo struct {
	Ordinal int // argument of OpenDevice; with all GPUs of the node visible, the local rank
	Name    string
	UUID    string // independent of visibility
	Bytes   uint64 // of memory
}

// Devices lists the GPUs. It opens none of them and needs no memory on them.
func (l *Library) Devices() ([]DeviceInfo, error) {
	var n int32
	if err := l.driverError("cuDeviceGetCount", l.cuda.DeviceGetCount(&n)); err != nil {
		return nil, err
	}
	list := make([]DeviceInfo, n)
	for i := range list {
		var handle int32
		var name [256]byte
		var uuid [16]byte
		var size uintptr
		for _, call := range []struct {
			op   string
			code func() int32
		}{
			{"cuDeviceGet", func() int32 { return l.cuda.DeviceGet(&handle, int32(i)) }},
			{"cuDeviceGetName", func() int32 { return l.cuda.DeviceGetName(&name[0], int32(len(name)), handle) }},
			{"cuDeviceGetUuid", func() int32 { return l.cuda.DeviceGetUUID(&uuid, handle) }},
			{"cuDeviceTotalMem", func() int32 { return l.cuda.DeviceTotalMem(&size, handle) }},
		} {
			if err := l.driverError(call.op, call.code()); err != nil {
				return nil, fmt.Errorf("device %d: %w", i, err)
			}
		}
		text, _, _ := bytes.Cut(name[:], []byte{0})
		list[i] = DeviceInfo{
			Ordinal: i, Name: string(text), Bytes: uint64(size),
			UUID: fmt.Sprintf("GPU-%x-%x-%x-%x-%x", uuid[:4], uuid[4:6], uuid[6:8], uuid[8:10], uuid[10:]),
		}
	}
	return list, nil
}

// Device is one GPU and the thread that makes its calls. Its methods may be called from any
// goroutine; they pass the work to that thread, which costs 10 to 25 µs.
type Device struct {
	lib     *Library
	ordinal int

	tasks   chan *task
	quit    chan struct{}
	closing sync.Once
	threads sync.WaitGroup

	// Used by the thread only.
	handle  int32
	context uintptr
	watched map[*Comm]struct{}
	idle    []uintptr            // events that can be reused
	events  []uintptr            // all events
	memory  map[uintptr]struct{} // from Alloc
}

// OpenDevice makes the device's primary context current on a thread of its own. The CUDA runtime
// uses the same context, so pointers, streams and events of a framework in this process are
// interchangeable with ours. The first use of a GPU by a process can take a second.
func (l *Library) OpenDevice(ctx context.Context, ordinal int) (*Device, error) {
	d := &Device{
		lib: l, ordinal: ordinal,
		tasks: make(chan *task), quit: make(chan struct{}),
		watched: map[*Comm]struct{}{}, memory: map[uintptr]struct{}{},
	}
	d.threads.Go(d.serve)
	err := d.do(ctx, "cuDevicePrimaryCtxRetain", func() error {
		if err := l.driverError("cuDeviceGet", l.cuda.DeviceGet(&d.handle, int32(ordinal))); err != nil {
			return err
		}
		if err := l.driverError("cuDevicePrimaryCtxRetain", l.cuda.PrimaryCtxRetain(&d.context, d.handle)); err != nil {
			return err
		}
		return l.driverError("cuCtxSetCurrent", l.cuda.CtxSetCurrent(d.context))
	})
	if err != nil {
		d.stop()
		return nil, fmt.Errorf("device %d: %w", ordinal, err)
	}
	return d, nil
}

// Ordinal is the argument of OpenDevice.
func (d *Device) Ordinal() int { return d.ordinal }

// Info describes the device; it is zero if the driver does not say.
func (d *Device) Info() DeviceInfo {
	list, err := d.lib.Devices()
	if err != nil || d.ordinal >= len(list) {
		return DeviceInfo{}
	}
	return list[d.ordinal]
}

// Library is the library that the device was opened with.
func (d *Device) Library() *Library { return d.lib }

// Close releases the context and ends the thread. Close communicators, stages, streams and memory
// of the device first. After an error of ErrStuck the thread stays.
func (d *Device) Close(ctx context.Context) error {
	err := d.do(ctx, "cuDevicePrimaryCtxRelease", func() error {
		c := &d.lib.cuda
		for _, e := range d.events {
			c.EventDestroy(e)
		}
		d.events, d.idle = nil, nil
		c.CtxSetCurrent(0)
		return d.lib.driverError("cuDevicePrimaryCtxRelease", c.PrimaryCtxRelease(d.handle))
	})
	d.stop()
	if err != nil {
		return fmt.Errorf("device %d: %w", d.ordinal, err)
	}
	d.threads.Wait()
	return nil
}

func (d *Device) stop() { d.closing.Do(func() { close(d.quit) }) }

// task is work for the device's thread.
type task struct {
	run  func() error
	done chan error // capacity 1, so that the thread never waits for a caller that has returned
}

// errThreadSpoiled ends the thread after its task: it is inside a group of calls that can neither
// be completed nor left.
var errThreadSpoiled = errors.New("the device's thread was replaced")

// serve is the body of the device's thread. It makes every native call of the device except those
// that end a communicator, one after the other.
func (d *Device) serve() {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if d.context != 0 {
		// This thread may replace a spoiled one. If this call fails, every later one will, and say
		// so.
		d.lib.cuda.CtxSetCurrent(d.context)
	}
	ticker := time.NewTicker(d.lib.opt.WatchEvery)
	defer ticker.Stop()
	for {
		ticks := ticker.C
		if len(d.watched) == 0 {
			ticks = nil
		}
		select {
		case t := <-d.tasks:
			err := t.run()
			t.done <- err
			if errors.Is(err, errThreadSpoiled) {
				d.threads.Go(d.serve)
				return
			}
		case <-ticks:
			for c := range d.watched {
				c.pollState()
			}
		case <-d.quit:
			return
		}
	}
}

// do runs f on the device's thread. It returns the cause of ctx if that ends before f begins. Once
// f runs, do waits for it, because f uses native state; if f outlasts ctx by more than
// Options.CallGrace the error is a *StuckError, and f may still be running.
func (d *Device) do(ctx context.Context, op string, f func() error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	t := &task{run: f, done: make(chan error, 1)}
	select {
	case d.tasks <- t:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	case <-d.quit:
		return fmt.Errorf("%s: device %d: %w", op, d.ordinal, ErrClosed)
	}
	select {
	case err := <-t.done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-t.done:
		return err
	case <-time.After(d.lib.opt.CallGrace):
		return &StuckError{Op: op, After: d.lib.opt.CallGrace}
	}
}

// call makes one call of the driver on the device's thread.
func (d *Device) call(ctx context.Context, op string, f func(*cudaCalls) int32) error {
	return d.do(ctx, op, func() error { return d.lib.driverError(op, f(&d.lib.cuda)) })
}

const (
	// askFor is how long the thread polls before it lets other tasks run. Most small operations end
	// within it, and switching tasks costs as much.
	askFor   = 20 * time.Microsecond
	maxPause = time.Millisecond
)

// poll polls on the device's thread until there is an answer or an error, or ctx ends.
func (d *Device) poll(ctx context.Context, op string, ask func() (bool, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := askFor; ; pause = min(2*pause, maxPause) {
		var done bool
		err := d.do(ctx, op, func() (err error) {
			for end := time.Now().Add(askFor); ; {
				if done, err = ask(); done || err != nil || time.Now().After(end) {
					return err
				}
			}
		})
		if err != nil || done {
			return err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", op, context.Cause(ctx))
		}
	}
}
