package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/nccl"
)

// stage measures copies to the host and back, with a host function that does nothing and with one
// that inverts all bits. After each pass the data is checked.
func (r *rig) stage(ctx context.Context, s settings, chunk int) (string, error) {
	st, err := r.NewStage(ctx, nccl.StageOptions{ChunkBytes: chunk})
	if err != nil {
		return "", err
	}
	if err := r.fill(ctx, r.send, ramp(1)); err != nil {
		return "", err
	}
	began := time.Now()
	err = st.Run(ctx, nil, r.send, func([]byte, int) error { return nil })
	idle := rate(s.bytes, began)
	if err != nil {
		return "", err
	}
	var busy string
	for _, want := range []func(int) float32{inverted, ramp(1)} { // inverting twice restores the bits
		began = time.Now()
		if err := st.Run(ctx, nil, r.send, invert); err != nil {
			return "", err
		}
		busy = rate(s.bytes, began)
		if err := r.verify(ctx, r.send, want); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("down and up %s; with work of the host %s; checked", idle, busy), st.Close(ctx)
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
