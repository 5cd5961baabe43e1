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
	if b, err := memoryOf(at, int64(len(all)), 4); err != nil || len(b) != 4*len(all) {
		t.Errorf("all that there is: %d bytes, %v", len(b), err)
	}
	for _, count := range []int64{1 << 40, 1 << 48, 1 << 60, math.MaxInt64, -1} {
		if _, err := memoryOf(at, count, 4); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("%d elements: %v, want ErrInvalid", count, err)
		}
	}
}
