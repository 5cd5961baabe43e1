package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// same compares bits, except that one NaN is as good as another.
func same[T Number](a, b T) bool {
	if a != a || b != b {
		return a != a && b != b
	}
	return a == b && math.Signbit(float64(a)) == math.Signbit(float64(b))
}

func check[T Number](t *testing.T, name string, special []T, fast func(dst, src []T), slow func(a, b T) T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func() T {
		if i := rng.IntN(4 * len(special)); i < len(special) {
			return special[i]
		}
		return T(rng.NormFloat64() * 1000)
	}
	for n := 0; n <= 257; n++ {
		// offset: buffers that do not start on the alignment of an allocation.
		for _, offset := range []int{0, 1} {
			dst, src := make([]T, n+offset+1), make([]T, n+offset+1)
			for i := range dst {
				dst[i], src[i] = pick(), pick()
			}
			want := append([]T(nil), dst...)
			for i := offset; i < offset+n; i++ {
				want[i] = slow(dst[i], src[i])
			}
			fast(dst[offset:offset+n], src[offset:])
			for i := range dst {
				if !same(dst[i], want[i]) {
					t.Fatalf("%s n %d offset %d: [%d] = %v, want %v", name, n, offset, i, dst[i], want[i])
				}
			}
		}
	}
}

func checkAll[T Number](t *testing.T, special []T) {
	t.Helper()
	check(t, "sum", special, Sum[T], func(a, b T) T { return a + b })
	check(t, "min", special, Min[T], func(a, b T) T { return min(a, b) })
	check(t, "max", special, Max[T], func(a, b T) T { return max(a, b) })
	for _, n := range []int{1, 2, 3, 7, 1000} {
		check(t, "divide", special, func(dst, _ []T) { Divide(dst, n) }, func(a, _ T) T {
			if IsFloat[T]() {
				return a * (1 / T(n))
			}
			return a / T(n)
		})
	}
}

type named float32

func TestKernelsAgreeWithADumbLoop(t *testing.T) {
	inf, negZero := math.Inf(1), math.Copysign(0, -1)
	checkAll(t, []float64{math.NaN(), inf, -inf, negZero, 0, math.MaxFloat64, math.SmallestNonzeroFloat64})
	f32 := []float32{float32(math.NaN()), float32(inf), float32(-inf), float32(negZero), 0, math.MaxFloat32, math.SmallestNonzeroFloat32}
	checkAll(t, f32)
	checkAll(t, []int32{math.MinInt32, math.MaxInt32, 0, -1, 1})
	checkAll(t, []int64{math.MinInt64, math.MaxInt64, 0, -1, 1})
	checkAll(t, []named{1.5, -2.5})
}

func TestNaNWinsAndZeroesAreOrdered(t *testing.T) {
	nan, negZero := math.NaN(), math.Copysign(0, -1)
	for _, pair := range [][2]float64{{nan, 1}, {1, nan}, {nan, math.Inf(-1)}, {math.Inf(1), nan}} {
		for _, op := range []func(a, b []float64){Sum[float64], Min[float64], Max[float64]} {
			d := []float64{pair[0]}
			op(d, []float64{pair[1]})
			if d[0] == d[0] {
				t.Fatalf("%v gave %v", pair, d[0])
			}
		}
	}
	d := []float64{0}
	Min(d, []float64{negZero})
	if !math.Signbit(d[0]) {
		t.Fatal("min(0, -0) is not -0")
	}
	Max(d, []float64{0})
	if math.Signbit(d[0]) {
		t.Fatal("max(-0, 0) is not 0")
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

func BenchmarkSumFloat32(b *testing.B) {
	d, s := make([]float32, 64<<10), make([]float32, 64<<10)
	b.SetBytes(int64(4 * len(d)))
	for b.Loop() {
		Sum(d, s)
	}
}
