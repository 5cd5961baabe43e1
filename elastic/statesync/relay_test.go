package statesync

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRelaySendsEachMissingChunkOnce from a member that has it, and loads all members evenly.
func TestRelaySendsEachMissingChunkOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		world, n := rapid.IntRange(2, 30).Draw(r, "world"), rapid.IntRange(0, 60).Draw(r, "chunks")
		ranks := rapid.Permutation(upTo(world)).Draw(r, "ranks")
		h := rapid.IntRange(1, world-1).Draw(r, "holders")
		holders, lacking := slices.Sorted(slices.Values(ranks[:h])), slices.Sorted(slices.Values(ranks[h:]))
		all := rapid.Bool().Draw(r, "all of it")
		missing, wanted := make([]chunkSet, world), 0
		for i := range missing {
			missing[i] = newChunkSet(n)
		}
		some := make([]bool, n)
		for _, q := range lacking {
			for i := range n {
				if all || rapid.Bool().Draw(r, "lacks") {
					missing[q].add(i)
					wanted, some[i] = wanted+1, true
				}
			}
		}
		plan := newRelay(holders, lacking, missing)
		schedules := make([]relaySchedule, world)
		for q := range schedules {
			schedules[q] = plan.schedule(q, n)
		}
		got, sent := 0, make([]int, world)
		for q, e := range schedules {
			seen := map[int]bool{}
			for from, chunks := range e.recv {
				if !slices.Equal(chunks, schedules[from].send[q]) || !slices.IsSorted(chunks) {
					r.Fatalf("rank %d expects %v of %d, which sends %v", q, chunks, from, schedules[from].send[q])
				}
				for _, i := range chunks {
					if seen[i] || !missing[q].has(i) {
						r.Fatalf("rank %d gets chunk %d for nothing", q, i)
					}
					if slices.Contains(lacking, from) && !slices.ContainsFunc(received(schedules[from]), func(j int) bool { return i == j }) {
						r.Fatalf("rank %d gets chunk %d of %d, which never has it", q, i, from)
					}
					seen[i] = true
					got++
				}
			}
			for _, chunks := range e.send {
				sent[q] += len(chunks)
			}
		}
		if got != wanted {
			r.Fatalf("%d chunks arrive, %d are lacked", got, wanted)
		}
		lacked := len(slices.DeleteFunc(some, func(b bool) bool { return !b }))
		sources := min(h, max(maxSources, len(lacking)))
		for q := range sent {
			limit := n
			if slices.Contains(holders, q) {
				limit = (lacked + sources - 1) / sources
			}
			if sent[q] > limit {
				r.Fatalf("rank %d sends %d chunks, at most %d are its part", q, sent[q], limit)
			}
		}
	})
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func received(s relaySchedule) (all []int) {
	for _, chunks := range s.recv {
		all = append(all, chunks...)
	}
	return all
}
