package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/nccl"
)

// rig is the shared state of the checks of one rank.
type rig struct {
	*checkedGPU
	comm       *nccl.Comm
	send, recv nccl.Buffer
}

// single runs the checks with a communicator of one rank.
func single(t *table, l *nccl.Library, s settings) {
	ctx, cancel := s.within()
	g, err := openGPU(ctx, l, s.device)
	cancel()
	if !t.must("open the GPU", "", err) {
		return
	}
	r := &rig{checkedGPU: g}
	checks := []struct {
		what string
		may  bool
		f    func(context.Context, settings) (string, error)
	}{
		{"init, not blocking", false, r.init},
		{"memory of the GPU", false, r.alloc},
		{"memory of the host is refused", false, r.refuse},
		{"all-reduce", false, r.allReduce},
		{"send and receive in a group", false, r.exchange},
		{"order with a caller's stream", false, r.order},
		{"launch and wait, 4 KiB", false, r.latency},
		{"all-reduce, large", false, r.bandwidth},
		{"finalize and destroy", false, r.closeComm},
		{"abort with work under way", false, r.abort},
		{"reform alone", true, r.reform},
		{"stage, chunks of 1 MiB", false, r.stage(1 << 20)},
		{"stage, chunks of 4 MiB", false, r.stage(4 << 20)},
		{"stage, chunks of 16 MiB", false, r.stage(16 << 20)},
	}
	for _, c := range checks {
		ctx, cancel := s.within()
		detail, err := c.f(ctx, s)
		cancel()
		if c.may {
			t.may(c.what, detail, err)
		} else if !t.must(c.what, detail, err) && (r.comm == nil || r.recv.Bytes() == 0) {
			break // what follows needs it
		}
	}
	ctx, cancel = s.within()
	defer cancel()
	t.must("close the GPU", "", errors.Join(g.Free(ctx, r.send), g.Free(ctx, r.recv), g.close(ctx)))
}

func (r *rig) init(ctx context.Context, _ settings) (string, error) {
	id, err := r.Library().UniqueID()
	if err != nil {
		return "", err
	}
	began := time.Now()
	r.comm, err = r.Init(ctx, nccl.CommOptions{World: 1, ID: id, Name: "gpucheck"})
	return took(began), err
}

func took(began time.Time) string {
	return fmt.Sprintf("%.2f ms", float64(time.Since(began).Microseconds())/1000)
}

func (r *rig) alloc(ctx context.Context, s settings) (string, error) {
	var err error
	if r.send, err = r.Alloc(ctx, s.bytes); err == nil {
		r.recv, err = r.Alloc(ctx, s.bytes)
	}
	if err != nil {
		return "", err
	}
	// As a framework passes it: a pointer and a size.
	_, err = r.Buffer(ctx, r.send.Pointer(), r.send.Bytes())
	return fmt.Sprintf("2 x %d MiB", s.bytes>>20), err
}

func (r *rig) refuse(ctx context.Context, _ settings) (string, error) {
	_, err := r.Buffer(ctx, address(r.pinned.Bytes), len(r.pinned.Bytes))
	if !errors.Is(err, nccl.ErrInvalid) {
		return "", fmt.Errorf("it was taken: %w", errors.Join(err, errWrong))
	}
	return err.Error(), nil
}

var errWrong = errors.New("not as it must be")

// do runs operations and waits for them.
func (r *rig) do(ctx context.Context, ops ...nccl.Operation) error {
	w, err := r.comm.Do(ctx, nil, ops...)
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}

// result runs operations on a pattern and checks the result.
func (r *rig) result(ctx context.Context, factor float32, ops ...nccl.Operation) error {
	if err := errors.Join(r.fill(ctx, r.send, ramp(1)), r.fill(ctx, r.recv, ramp(0))); err != nil {
		return err
	}
	if err := r.do(ctx, ops...); err != nil {
		return err
	}
	return r.verify(ctx, r.recv, ramp(factor))
}

func (r *rig) allReduce(ctx context.Context, _ settings) (string, error) {
	return "sum of float32, checked", r.result(ctx, 1, nccl.AllReduce(r.send, r.recv, nccl.Float32, nccl.Sum))
}

func (r *rig) exchange(ctx context.Context, _ settings) (string, error) {
	return "with itself, checked", r.result(ctx, 1, nccl.Send(r.send, nccl.Float32, 0), nccl.Recv(r.recv, nccl.Float32, 0))
}

// order puts a collective between two copies on a stream that is not the communicator's, without
// waiting in between.
func (r *rig) order(ctx context.Context, _ settings) (string, error) {
	caller, err := r.NewStream(ctx)
	if err != nil {
		return "", err
	}
	half := r.send.Bytes() / 8 * 4
	from, middle, to := r.send.Slice(0, half), r.recv.Slice(0, half), r.recv.Slice(half, 2*half)
	for i := range 20 { // a race shows only sometimes
		factor := float32(i + 1)
		if err := errors.Join(r.fill(ctx, from, ramp(factor)), r.fill(ctx, r.recv, ramp(0)), caller.Copy(ctx, middle, from)); err != nil {
			return "", err
		}
		w, err := r.comm.Do(ctx, caller, nccl.AllReduce(middle, middle, nccl.Float32, nccl.Sum))
		if err != nil {
			return "", err
		}
		if err := errors.Join(w.Before(ctx, caller), caller.Copy(ctx, to, middle), caller.Wait(ctx), w.Wait(ctx)); err != nil {
			return "", err
		}
		if err := r.verify(ctx, to, ramp(factor)); err != nil {
			return "", err
		}
	}
	return "20 times, checked", caller.Close(ctx)
}

func (r *rig) latency(ctx context.Context, _ settings) (string, error) {
	const times = 200
	b := r.send.Slice(0, 4096)
	var launch, wait time.Duration
	for range times {
		began := time.Now()
		w, err := r.comm.Do(ctx, nil, nccl.AllReduce(b, b, nccl.Float32, nccl.Sum))
		if err != nil {
			return "", err
		}
		launched := time.Now()
		if err := w.Wait(ctx); err != nil {
			return "", err
		}
		launch, wait = launch+launched.Sub(began), wait+time.Since(launched)
	}
	return fmt.Sprintf("launch %.1f µs, wait %.1f µs, mean of %d", micros(launch/times), micros(wait/times), times), nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func (r *rig) bandwidth(ctx context.Context, s settings) (string, error) {
	began := time.Now()
	err := r.do(ctx, nccl.AllReduce(r.send, r.recv, nccl.Float32, nccl.Sum))
	return rate(s.bytes, began), err
}

func rate(bytes int, began time.Time) string {
	d := time.Since(began)
	return fmt.Sprintf("%d MiB in %.2f ms, %.2f GB/s", bytes>>20, d.Seconds()*1000, float64(bytes)/1e9/d.Seconds())
}

func (r *rig) closeComm(ctx context.Context, _ settings) (string, error) {
	began := time.Now()
	err := r.comm.Close(ctx)
	return took(began), err
}

func (r *rig) abort(ctx context.Context, s settings) (string, error) {
	if _, err := r.init(ctx, s); err != nil {
		return "", err
	}
	w, err := r.comm.Do(ctx, nil, nccl.AllReduce(r.send, r.recv, nccl.Float32, nccl.Sum))
	if err != nil {
		return "", err
	}
	began := time.Now()
	if err := r.comm.Abort(ctx, errors.New("gpucheck")); err != nil {
		return "", err
	}
	detail := took(began)
	if err := w.Wait(ctx); !errors.Is(err, nccl.ErrAborted) {
		return "", fmt.Errorf("who waited got %w", errors.Join(err, errWrong))
	}
	return detail, nil
}

// reform is the recovery from a false alarm: no rank was lost.
func (r *rig) reform(ctx context.Context, s settings) (string, error) {
	if _, err := r.init(ctx, s); err != nil {
		return "", err
	}
	began := time.Now()
	next, err := r.comm.Reform(ctx, []int{0})
	detail := took(began)
	if err != nil {
		return "", errors.Join(err, r.comm.Abort(ctx, err))
	}
	r.comm = next
	err = r.result(ctx, 1, nccl.AllReduce(r.send, r.recv, nccl.Float32, nccl.Sum))
	return detail, errors.Join(err, r.comm.Close(ctx))
}

// stage measures copies to the host and back, with a host function that does nothing and with one
// that inverts all bits. After each pass the data is checked.
func (r *rig) stage(chunk int) func(context.Context, settings) (string, error) {
	return func(ctx context.Context, s settings) (string, error) {
		st, err := r.NewStage(ctx, nccl.StageOptions{ChunkBytes: chunk})
		if err == nil {
			err = r.fill(ctx, r.send, ramp(1))
		}
		if err != nil {
			return "", err
		}
		began := time.Now()
		err = st.Run(ctx, nil, r.send, func([]byte, int) error { return nil })
		idle, busy := rate(s.bytes, began), ""
		for _, want := range []func(int) float32{inverted, ramp(1)} { // inverting twice restores the bits
			began = time.Now()
			if err == nil {
				err = st.Run(ctx, nil, r.send, invert)
			}
			if busy = rate(s.bytes, began); err == nil {
				err = r.verify(ctx, r.send, want)
			}
		}
		return fmt.Sprintf("down and up %s; with work of the host %s; checked", idle, busy), errors.Join(err, st.Close(ctx))
	}
}

// inverted is ramp(1) with all bits inverted.
func inverted(i int) float32 { return math.Float32frombits(^math.Float32bits(ramp(1)(i))) }

func invert(chunk []byte, _ int) error {
	for len(chunk) >= 8 {
		binary.NativeEndian.PutUint64(chunk, ^binary.NativeEndian.Uint64(chunk))
		chunk = chunk[8:]
	}
	for i := range chunk {
		chunk[i] = ^chunk[i]
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// checkedGPU is a device with a stream for copies and pinned memory to copy through.
type checkedGPU struct {
	*nccl.Device
	copies *nccl.Stream
	pinned *nccl.HostMemory
}

func openGPU(ctx context.Context, l *nccl.Library, ordinal int) (*checkedGPU, error) {
	d, err := l.OpenDevice(ctx, ordinal)
	if err != nil {
		return nil, err
	}
	g := &checkedGPU{Device: d}
	if g.copies, err = d.NewStream(ctx); err == nil {
		g.pinned, err = d.AllocHost(ctx, 1<<20)
	}
	return g, err
}

func (g *checkedGPU) close(ctx context.Context) error {
	return errors.Join(g.pinned.Free(ctx), g.copies.Close(ctx), g.Device.Close(ctx))
}

// fill sets each float32 of b to at(i).
func (g *checkedGPU) fill(ctx context.Context, b nccl.Buffer, at func(i int) float32) error {
	return g.pieces(b, func(part nccl.Buffer, memory []byte, first int) error {
		for i := range len(memory) / 4 {
			binary.NativeEndian.PutUint32(memory[4*i:], math.Float32bits(at(first+i)))
		}
		if err := g.copies.ToDevice(ctx, part, memory); err != nil {
			return err
		}
		return g.copies.Wait(ctx)
	})
}

// verify checks each float32 of b against at(i), in all bits.
func (g *checkedGPU) verify(ctx context.Context, b nccl.Buffer, at func(i int) float32) error {
	return g.pieces(b, func(part nccl.Buffer, memory []byte, first int) error {
		if err := g.copies.ToHost(ctx, memory, part); err != nil {
			return err
		}
		if err := g.copies.Wait(ctx); err != nil {
			return err
		}
		for i := range len(memory) / 4 {
			got, want := math.Float32frombits(binary.NativeEndian.Uint32(memory[4*i:])), at(first+i)
			if math.Float32bits(got) != math.Float32bits(want) {
				return fmt.Errorf("element %d is %v, not %v", first+i, got, want)
			}
		}
		return nil
	})
}

func (g *checkedGPU) pieces(b nccl.Buffer, f func(part nccl.Buffer, memory []byte, first int) error) error {
	for from := 0; from < b.Bytes(); from += len(g.pinned.Bytes) {
		to := min(b.Bytes(), from+len(g.pinned.Bytes))
		if err := f(b.Slice(from, to), g.pinned.Bytes[:to-from], from/4); err != nil {
			return err
		}
	}
	return nil
}

// ramp is a pattern whose sums over a few ranks are exact.
func ramp(factor float32) func(int) float32 {
	return func(i int) float32 { return factor * float32(i%1000) }
}
