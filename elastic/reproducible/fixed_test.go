package reproducible

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective/kernel"
)

func TestShifts(t *testing.T) {
	for _, c := range []struct {
		magnitude float32
		summands  int
		shift     int
	}{
		{0.3, 12, 47}, // as in the documentation: 46 bits and 0.3 < 2^-1
		{0.5, 12, 46},
		{1, 1, 49},
		{1, 2, 48},
		{math.MaxFloat32, 1, 50 - 128},
		{math.SmallestNonzeroFloat32, 1, 50 + 148},
		{1, maxSummands, 23},
	} {
		if got := shiftFor(c.magnitude, c.summands); got != c.shift {
			t.Errorf("%g in %d summands: shift %d, want %d", c.magnitude, c.summands, got, c.shift)
		}
		if !fits(c.magnitude, c.shift, c.summands) {
			t.Errorf("%g in %d summands does not fit its own shift", c.magnitude, c.summands)
		}
	}
}

// TestGrowth: 2^12 times as much fits and never overflows; more does not fit, nor does what loses
// bits.
func TestGrowth(t *testing.T) {
	for _, summands := range []int{1, 2, 3, 12, 64, 1000} {
		for _, m := range []float32{1, 0.75, 1.5e-9, 3e20} {
			shift := shiftFor(m, summands)
			lost := bitsFor(summands, headroom) - precision
			for growth, fit := range map[int]bool{
				0: true, headroom: true, headroom + 1: false, 30: false, -lost: true, -lost - 1: false, -60: false,
			} {
				if got := fits(float32(math.Ldexp(float64(m), growth)), shift, summands); got != fit {
					t.Errorf("%g, of %d, times 2^%d fits: %v", m, summands, growth, got)
				}
			}
			largest := float32(math.Ldexp(float64(math.Nextafter32(1, 0)), 128))
			if e := math.Ilogb(float64(m)) + headroom + 1; e < 128 {
				largest = float32(math.Ldexp(float64(math.Nextafter32(1, 0)), e))
			}
			total, exact := []int64{0}, new(big.Int)
			for range summands {
				one := []int64{0}
				add(one, []float32{largest}, shift)
				add(total, []float32{largest}, shift)
				exact.Add(exact, big.NewInt(one[0]))
			}
			if !exact.IsInt64() || exact.Int64() != total[0] || total[0] <= 0 {
				t.Errorf("%d summands of %g have the total %d, want %v", summands, largest, total[0], exact)
			}
		}
	}
	if !fits(0, 1000, 5) || !fits(absent, 1000, 5) {
		t.Error("nothing does not fit")
	}
}

func TestMagnitudeIsWhatAddReturns(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		gradient []float32
		want     float32
	}{
		{nil, 0},
		{[]float32{0, float32(math.Copysign(0, -1))}, 0},
		{[]float32{1, -3, 2}, 3},
		{[]float32{1, nan, 2}, inf},
		{[]float32{-nan}, inf},
		{[]float32{inf, 1}, inf},
		{[]float32{-inf, 1}, inf},
		{[]float32{math.SmallestNonzeroFloat32}, math.SmallestNonzeroFloat32},
	} {
		for _, more := range []int{0, 1, 100} {
			g := append(slices.Clone(c.gradient), make([]float32, more)...)
			if got := magnitude(g); got != c.want {
				t.Errorf("%v and %d zeros: %g, want %g", c.gradient, more, got, c.want)
			}
			if got := add(make([]int64, len(g)), g, 0); got != c.want {
				t.Errorf("%v and %d zeros: add returns %g, want %g", c.gradient, more, got, c.want)
			}
		}
	}
}

// TestSumsHaveNoOrder: however the summands are split over ranks, and in whatever order they and
// the ranks are added up, the total is the same, and the mean is the exact one, rounded.
func TestSumsHaveNoOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, summands := range []int{1, 2, 5, 12, 31} {
		const n = 300
		gradients := make([][]float32, summands)
		var most float32
		for m := range gradients {
			gradients[m] = make([]float32, n)
			for i := range gradients[m] {
				gradients[m][i] = float32(math.Ldexp(2*rng.Float64()-1, rng.IntN(30)-20))
			}
			most = max(most, magnitude(gradients[m]))
		}
		shift := shiftFor(most, summands)
		want := make([]int64, n)
		for _, g := range gradients {
			add(want, g, shift)
		}
		for range 50 {
			world := 1 + rng.IntN(6)
			ranks := make([][]int64, world)
			for r := range ranks {
				ranks[r] = make([]int64, n)
			}
			for _, m := range rng.Perm(summands) {
				add(ranks[rng.IntN(world)], gradients[m], shift)
			}
			got := make([]int64, n)
			for _, r := range rng.Perm(world) {
				for i, x := range ranks[r] {
					got[i] += x
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%d summands on %d ranks have another total", summands, world)
			}
		}
		mean := make([]float32, n)
		kernel.MeanFixed(bytesOf(mean), bytesOf(want), math.Ldexp(1, -shift), summands)
		for i := range mean {
			exact := new(big.Rat)
			for _, g := range gradients {
				exact.Add(exact, new(big.Rat).SetFloat64(float64(g[i])))
			}
			exact.Quo(exact, big.NewRat(int64(summands), 1))
			value, _ := exact.Float64()
			// Half of float32's last bit, and what the integers leave out: half a unit of each.
			if off := math.Abs(float64(mean[i]) - value); off > math.Abs(value)*0x1p-23+math.Ldexp(1, -shift) {
				t.Fatalf("mean %g, exactly %g", mean[i], value)
			}
		}
	}
}

// TestEqualGradientsAreTheirMean, also if their number has no exact inverse.
func TestEqualGradientsAreTheirMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for summands := 1; summands < 100; summands++ {
		g := make([]float32, 50)
		for i := range g {
			g[i] = float32(2*rng.Float64() - 1)
		}
		shift, total := shiftFor(1, summands), make([]int64, len(g))
		for range summands {
			add(total, g, shift)
		}
		mean := make([]float32, len(g))
		kernel.MeanFixed(bytesOf(mean), bytesOf(total), math.Ldexp(1, -shift), summands)
		for i := range g {
			if math.Abs(float64(g[i])) > 0x1p-20 && mean[i] != g[i] {
				t.Fatalf("the mean of %d times %g is %g", summands, g[i], mean[i])
			}
		}
	}
}

func TestNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 40 {
		g := make([]float32, n)
		exact := new(big.Float).SetPrec(200)
		for i := range g {
			g[i] = float32(rng.NormFloat64() * math.Ldexp(1, rng.IntN(20)))
			exact.Add(exact, new(big.Float).SetFloat64(float64(g[i])*float64(g[i])))
		}
		want, _ := exact.Sqrt(exact).Float64()
		got := Norm(g)
		if math.Abs(got-want) > want*1e-14 {
			t.Errorf("norm of %d: %v, want %v", n, got, want)
		}
		before := slices.Clone(g)
		if was := ClipNorm(g, want*2); was != got || !slices.Equal(g, before) {
			t.Errorf("a norm that is not too large is %v, and the gradients change: %v", was, !slices.Equal(g, before))
		}
		if n == 0 {
			continue
		}
		if was, now := ClipNorm(g, 1), Norm(g); was != got || math.Abs(now-1) > 1e-6 {
			t.Errorf("clipped from %v to %v, want from %v to 1", was, now, got)
		}
	}
	g := []float32{1, float32(math.NaN()), 2}
	if was := ClipNorm(g, 1); !math.IsNaN(was) || g[0] != 1 {
		t.Errorf("a norm of NaN is %v, and the gradients are %v", was, g)
	}
}

func ExampleClipNorm() {
	gradients := []float32{3, 4}
	fmt.Println(ClipNorm(gradients, 1), gradients)
	// Output: 5 [0.6 0.8]
}
