package kernel

import (
	"slices"
	"testing"
)

type named float32

func TestSlicesOfNumbers(t *testing.T) {
	dst, src := []named{1, 2, 3}, []named{3, 2, 1, 7}
	Sum(dst, src)
	Max(dst, []named{5, 1, 1})
	Min(dst, []named{9, 9, 2})
	Divide(dst, 2)
	if !slices.Equal(dst, []named{2.5, 2, 1}) {
		t.Fatal(dst)
	}
	for _, got := range []Type{typeOf[named](), typeOf[float64](), typeOf[int32](), typeOf[int64]()} {
		t.Log(got)
	}
	if typeOf[named]() != Float32 || typeOf[float64]() != Float64 || typeOf[int32]() != Int32 || typeOf[int64]() != Int64 {
		t.Fatal("a wrong type")
	}
}

func TestAShortSourceIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	Sum(make([]int32, 9), make([]int32, 8))
}
