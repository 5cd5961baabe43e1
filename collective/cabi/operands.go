//go:build cgo

package main

// #include "regroup.h"
import "C"

import (
	"math"
	"os"
	"syscall"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// The numbers of regroup.h. They are promised to C programs, so they are independent of the
// engine's.
var (
	types = [...]kernel.Type{
		1: kernel.Int8, 2: kernel.Uint8, 3: kernel.Int16, 4: kernel.Int32, 5: kernel.Int64,
		6: kernel.Float16, 7: kernel.BFloat16, 8: kernel.Float32, 9: kernel.Float64,
	}
	ops = [...]collective.Op{collective.Sum, collective.Average, collective.Product, collective.Min, collective.Max}
)

func typeOf(n int32) (kernel.Type, error) {
	if n < 1 || int(n) >= len(types) {
		return 0, invalidf("type %d is none of RG_INT8 to RG_FLOAT64", n)
	}
	return types[n], nil
}

// wireOf is the type of the elements on the wire; 0 = that of the tensor.
func wireOf(n int32) (kernel.Type, error) {
	if n == 0 {
		return 0, nil
	}
	return typeOf(n)
}

func opOf(n int32) (collective.Op, error) {
	if n < 0 || int(n) >= len(ops) {
		return 0, invalidf("reduction %d is none of RG_SUM to RG_MAX", n)
	}
	return ops[n], nil
}

// byteCount is how many bytes n elements of size bytes each have.
func byteCount(n int64, size int) (int64, error) {
	switch {
	case n < 0:
		return 0, invalidf("a count of %d", n)
	case n > math.MaxInt64/int64(size):
		return 0, invalidf("%d elements of %d bytes are more than there can be", n, size)
	}
	return n * int64(size), nil
}

// checkFrom is from how many bytes the end of a program's memory is looked at: an operation on so
// many takes a thousand times as long as the look.
const checkFrom = 1 << 20

// memoryOf is n elements of size bytes each, owned by the caller. A count that is far too large,
// for which no memory is there, is refused: the operation would read what is not there, after
// hours, or wait for it in vain.
func memoryOf(p unsafe.Pointer, n int64, size int) ([]byte, error) {
	bytes, err := byteCount(n, size)
	switch {
	case err != nil || bytes == 0:
		return nil, err
	case p == nil:
		return nil, invalidf("no memory for %d elements", n)
	case bytes >= checkFrom && !mapped(uintptr(p), uint64(bytes)-1):
		return nil, invalidf("%d elements of %d bytes are more than the program has at %p", n, size, p)
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// mapped reports whether there is memory at an offset from an address.
func mapped(at uintptr, offset uint64) bool {
	page := uintptr(os.Getpagesize())
	last := at + uintptr(offset)
	if last < at {
		return false
	}
	var resident byte
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, last&^(page-1), page, uintptr(unsafe.Pointer(&resident)))
	return errno != syscall.ENOMEM
}

func tensorOf(p unsafe.Pointer, n int64, dtype C.int32_t) (collective.Tensor, error) {
	t, err := typeOf(int32(dtype))
	if err != nil {
		return collective.Tensor{}, err
	}
	data, err := memoryOf(p, n, t.Size())
	return collective.Tensor{Type: t, Data: data}, err
}

// inPlace is the elements that an operation works on in place.
func inPlace(op *C.rg_op) (collective.Tensor, error) {
	return tensorOf(op.recv, int64(op.count), op._type)
}

// reductionOf is the elements that an operation reduces in place, and how.
func reductionOf(op *C.rg_op) (collective.Tensor, collective.Op, error) {
	t, err := inPlace(op)
	if err != nil {
		return t, 0, err
	}
	o, err := opOf(int32(op.reduction))
	return t, o, err
}

// rowsOf is a tensor of rows with op.row elements each.
func rowsOf(op *C.rg_op, data unsafe.Pointer, rows int64) (collective.Tensor, error) {
	const most = 1 << 48 // elements, far more than memory has
	row := int64(op.row)
	if rows < 0 || row < 0 || rows > most || row > most || rows > 0 && row > most/rows {
		return collective.Tensor{}, invalidf("%d rows of %d elements", rows, row)
	}
	return tensorOf(data, rows*row, op._type)
}

// blocks copies the counts of the ranks' blocks and sums them; nil = count in equal blocks.
func blocks(counts *C.int64_t, count int64, world int) ([]int, int64, error) {
	if counts == nil {
		return nil, count, nil
	}
	n, total := make([]int, world), int64(0)
	for i, c := range unsafe.Slice(counts, world) {
		if c < 0 {
			return nil, 0, invalidf("count %d is %d", i, int64(c))
		}
		if int64(c) > math.MaxInt64-total {
			return nil, 0, invalidf("the counts are together more than there can be")
		}
		n[i] = int(c)
		total += int64(c)
	}
	return n, total, nil
}
