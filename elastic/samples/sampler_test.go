package samples

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func TestPermutationIsABijection(t *testing.T) {
	check := func(n, seed, epoch uint64) {
		p := newPermutation(n, seed, epoch)
		seen := make([]bool, n)
		for i := range n {
			at := p.at(i)
			if at >= n || seen[at] {
				t.Fatalf("n %d seed %d epoch %d: index %d twice or out of range", n, seed, epoch, at)
			}
			seen[at] = true
		}
	}
	for n := range uint64(2001) {
		check(n, n*3, n%5)
	}
	rapid.Check(t, func(r *rapid.T) {
		check(rapid.Uint64Range(2000, 60000).Draw(r, "n"), rapid.Uint64().Draw(r, "seed"), rapid.Uint64().Draw(r, "epoch"))
	})
}

func TestPermutationOfHugeSets(t *testing.T) {
	for _, n := range []uint64{1 << 40, 1<<40 + 1, 1<<62 - 3, 1 << 62} {
		p := newPermutation(n, 1, 0)
		seen := map[uint64]bool{}
		for i := range uint64(5000) {
			at := p.at(i * (n / 5000))
			if at >= n || seen[at] {
				t.Fatalf("n %d: index %d twice or out of range", n, at)
			}
			seen[at] = true
		}
	}
}

func TestOrdersDiffer(t *testing.T) {
	order := func(seed, epoch uint64) (all []uint64) {
		p := newPermutation(100, seed, epoch)
		for i := range uint64(100) {
			all = append(all, p.at(i))
		}
		return all
	}
	first := order(0, 1)
	for _, o := range [][]uint64{order(1, 0), order(0, 0), order(0, 2), order(1, 1)} {
		same := 0
		for i := range o {
			if o[i] == first[i] {
				same++
			}
		}
		if same > 15 {
			t.Errorf("%d of 100 places are the same in two orders", same)
		}
	}
	if !slices.Equal(first, order(0, 1)) {
		t.Error("an order is not the same twice")
	}
}

// stream deals n batches to a world and returns the samples in global order.
func stream(s *Sampler, batch, world, n int) (all []int) {
	for range n {
		var b Batch
		for r := range world {
			b = s.Next(batch, r, world)
			all = append(all, b.Indices...)
		}
		s.Advance(b)
	}
	return all
}

func TestOrderIsTheSameInEveryWorld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples := rapid.Uint64Range(1, 500).Draw(r, "samples")
		batch := rapid.IntRange(1, 70).Draw(r, "batch")
		seed := rapid.Uint64().Draw(r, "seed")
		one, many := NewSampler(samples, seed), NewSampler(samples, seed)
		for range rapid.IntRange(1, 12).Draw(r, "changes") {
			n := rapid.IntRange(0, 6).Draw(r, "batches")
			world := rapid.IntRange(1, 90).Draw(r, "world")
			if a, b := stream(one, batch, 1, n), stream(many, batch, world, n); !slices.Equal(a, b) {
				r.Fatalf("world %d deals %v, one worker %v", world, b, a)
			}
			// A new life continues at the cursor, and only that.
			again := NewSampler(samples, seed)
			again.Seek(many.Cursor())
			many = again
		}
	})
}

func TestEpochIsDealtExactlyOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		samples := rapid.IntRange(1, 400).Draw(r, "samples")
		s := NewSampler(uint64(samples), 9)
		l := workerprotocol.Ledger{Samples: uint64(samples)}
		for s.Cursor().Epoch < 2 {
			world, batch := rapid.IntRange(1, 9).Draw(r, "world"), rapid.IntRange(1, 100).Draw(r, "batch")
			var b Batch
			count, sum, least, most := 0, uint64(0), samples, 0
			for rank := range world {
				b = s.Next(batch, rank, world)
				count += len(b.Indices)
				sum += HashSum(b.Indices)
				least, most = min(least, len(b.Indices)), max(most, len(b.Indices))
			}
			if count != b.Total || most-least > 1 {
				r.Fatalf("shares of %d to %d make %d of %d", least, most, count, b.Total)
			}
			l.Add(workerprotocol.LedgerEpoch{Epoch: b.Epoch, Count: uint64(count), Sum: sum, Done: b.Last})
			s.Advance(b)
		}
		if err := CheckLedger(l); err != nil || len(l.Epochs) != 2 || !l.Epochs[1].Done {
			r.Fatalf("%v: %+v", err, l)
		}
	})
}

func TestLedgerRefutes(t *testing.T) {
	whole := workerprotocol.Ledger{Samples: 10}
	whole.Add(workerprotocol.LedgerEpoch{Epoch: 0, Count: 10, Sum: HashSum([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), Done: true})
	if err := CheckLedger(whole); err != nil {
		t.Errorf("a whole epoch: %v", err)
	}
	for name, indices := range map[string][]int{
		"missing": {0, 1, 2, 3, 4, 5, 6, 7, 8}, "repeated": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9}, "exchanged": {0, 1, 2, 3, 4, 5, 6, 7, 8, 8},
	} {
		l := workerprotocol.Ledger{Samples: 10}
		l.Add(workerprotocol.LedgerEpoch{Epoch: 0, Count: uint64(len(indices)), Sum: HashSum(indices), Done: true})
		if CheckLedger(l) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	s := NewSampler(1_200_000, 1)
	for b.Loop() {
		s.Next(256, 0, 1)
	}
}
