//go:build cgo

package main

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
)

// TestACountForWhichThereIsNoMemory is refused before anything is read or sent; all that there is
// is taken, to its last byte.
func TestACountForWhichThereIsNoMemory(t *testing.T) {
	all := make([]float32, 1<<20)
	at := unsafe.Pointer(unsafe.SliceData(all))
	if x, _, err := reductionArgs(at, int64(len(all)), 8, 0); err != nil || len(x.Data) != 4*len(all) {
		t.Errorf("all that there is: %d bytes, %v", len(x.Data), err)
	}
	for _, count := range []int64{1 << 40, 1 << 48, 1 << 60, math.MaxInt64, -1} {
		if _, _, err := reductionArgs(at, count, 8, 0); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("%d elements: %v, want ErrInvalid", count, err)
		}
	}
}
