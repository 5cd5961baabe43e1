package reproducible

import (
	"slices"
	"testing"
)

func TestFastest(t *testing.T) {
	for _, c := range []struct {
		count   int
		seconds []float64
		want    []int
	}{
		{7, []float64{1, 1, 3}, []int{3, 3, 1}},
		{6, []float64{2, 2}, []int{3, 3}},
		{2, []float64{1, 100}, []int{1, 1}},
		{12, []float64{1, 2, 3}, []int{7, 3, 2}},
	} {
		if got := fastest(c.count, c.seconds); !slices.Equal(got, c.want) {
			t.Errorf("of %d, with %v: %v, want %v", c.count, c.seconds, got, c.want)
		}
	}
}

// TestSharesFollow wants that they change when a step gets shorter by a tenth, not sooner, and that
// short steps in between change nothing.
func TestSharesFollow(t *testing.T) {
	var s shares
	want := func(sizes ...int) {
		t.Helper()
		if got := s.of(total(sizes), len(sizes)); !slices.Equal(got, sizes) {
			t.Errorf("the shares are %v, want %v", got, sizes)
		}
	}
	want(2, 2, 2)
	s.measured(6, []float32{1, 1, 0}) // the third is unknown
	want(2, 2, 2)
	s.measured(6, []float32{1, 1, 1.04})
	want(2, 2, 2)
	for range 20 {
		s.measured(6, []float32{1, 1, 2})
	}
	want(3, 2, 1) // 3 seconds instead of 4
	s.measured(1, []float32{1, 0, 0})
	want(1, 0, 0)
	s.measured(4, []float32{1, 1, 2})
	want(2, 1, 1)
	want(3, 2, 1)
	for range 20 {
		s.measured(6, []float32{1, 1, 1})
	}
	want(2, 2, 2)
	s.measured(12, []float32{1, 1, 1}) // larger ones
	want(4, 4, 4)
	for range 20 {
		s.measured(12, []float32{1, 1, 3})
	}
	want(5, 5, 2)
	s.measured(12, []float32{1, 1}) // other ranks
	want(6, 6)
}

// TestASlowRankGetsLess: it computes fewer micro-batches, and the bits are the same.
func TestASlowRankGetsLess(t *testing.T) {
	p := usual
	p.epochs = 4
	p.pace = func(w *worker, _ uint64) float64 {
		if w.name == "w1" {
			return 3
		}
		return 1
	}
	want := alone(t, p)
	got := newFleet(t, &p, 3).run()
	same(t, want, got)
	for _, w := range got {
		calls := map[uint64]int{}
		for _, c := range w.calls {
			calls[c.step]++
		}
		least, most := 1, 1
		if w.name != "w1" {
			least, most = 2, 3
		}
		for step := uint64(1); step < 20; step++ {
			if step%5 != 4 && (calls[step] < least || calls[step] > most) { // the end of an epoch has one for all
				t.Errorf("%s computed %d micro-batches of step %d, want %d to %d", w.name, calls[step], step, least, most)
			}
		}
	}
}
