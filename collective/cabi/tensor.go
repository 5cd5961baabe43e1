//go:build cgo

package main

import (
	"math"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// The numbers of regroup.h. They are promised to C programs, so they do not follow when those of the engine change.
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

// memory is n pieces of size bytes each, of the caller.
func memory(p unsafe.Pointer, n int64, size int) ([]byte, error) {
	switch {
	case n < 0:
		return nil, invalidf("a count of %d", n)
	case n == 0:
		return nil, nil
	case p == nil:
		return nil, invalidf("no memory for %d elements", n)
	case n > math.MaxInt64/int64(size):
		return nil, invalidf("%d elements of %d bytes are more than there can be", n, size)
	}
	return unsafe.Slice((*byte)(p), n*int64(size)), nil
}

func tensorOf(p unsafe.Pointer, n int64, dtype int32) (collective.Tensor, error) {
	t, err := typeOf(dtype)
	if err != nil {
		return collective.Tensor{}, err
	}
	data, err := memory(p, n, t.Size())
	return collective.Tensor{Type: t, Data: data}, err
}

// reduced is what the operations that reduce need.
func reduced(p unsafe.Pointer, n int64, dtype, op int32) (collective.Tensor, collective.Op, error) {
	t, err := tensorOf(p, n, dtype)
	if err != nil {
		return t, 0, err
	}
	o, err := opOf(op)
	return t, o, err
}
