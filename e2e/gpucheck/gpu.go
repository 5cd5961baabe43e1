package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/regroup-io/regroup/collective/nccl"
)

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
