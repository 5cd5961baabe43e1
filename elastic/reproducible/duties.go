package reproducible

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// duty is a micro-batch that two ranks compute in a step.
type duty struct{ m, owner, witness int }

// duties returns those of a step, count of them, of ranks with shares of these sizes. They are
// chosen by the step's number, so that each micro-batch, and each rank as the witness of each
// other, has its turn.
//
//	shares 2, 1 and 1 of the micro-batches 0 to 3, which have the turns 70, 12, 95 and 31
//	count 2: micro-batches 1 and 3, of ranks 0 and 2; witnesses are the others' 12%2 and 31%2
func duties(step uint64, shares []int, count int) []duty {
	if len(shares) < 2 {
		return nil
	}
	var owners, all []int
	var turns []uint64
	for rank, n := range shares {
		for range n {
			m := len(owners)
			owners, all = append(owners, rank), append(all, m)
			turns = append(turns, rand.NewPCG(step, uint64(m)).Uint64())
		}
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(turns[a], turns[b]) })
	found := make([]duty, min(count, len(all)))
	for i, m := range all[:len(found)] {
		witness := int(turns[m] % uint64(len(shares)-1))
		if witness >= owners[m] {
			witness++ // of the others
		}
		found[i] = duty{m, owners[m], witness}
	}
	return found
}

// majority returns what more than half of the ranks have; ok is false if there is no such thing.
func majority[T comparable](values []T) (right T, ok bool) {
	count := map[T]int{}
	for _, v := range values {
		count[v]++
		if 2*count[v] > len(values) {
			return v, true
		}
	}
	return right, false
}

// verdict says what the right result of a micro-batch is, and which ranks have had another one:
// each time, or only once.
type verdict struct {
	right        uint64
	always, once []int
}

// decide decides on results of one micro-batch: first of the ranks that had computed it before,
// second of all ranks. ok is false if there is no majority.
func decide(first map[int]uint64, second []uint64) (v verdict, ok bool) {
	if v.right, ok = majority(second); !ok {
		return v, false
	}
	for rank, result := range second {
		if result != v.right {
			v.always = append(v.always, rank)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(first)) {
		if first[rank] != v.right && !slices.Contains(v.always, rank) {
			v.once = append(v.once, rank)
		}
	}
	return v, true
}
