package elastic

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAgreeChoosesTheNewest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		offers := make([]offer, rapid.IntRange(1, 40).Draw(r, "world"))
		for i := range offers {
			offers[i] = offer{standing: standing(rapid.IntRange(0, 3).Draw(r, "standing")), hash: digest{rapid.Byte().Draw(r, "hash") % 4}}
			offers[i].name.Generation, offers[i].name.Step = rapid.Uint64Range(1, 3).Draw(r, "g"), rapid.Uint64Range(0, 3).Draw(r, "s")
			if offers[i].standing != committed {
				offers[i].name.Life = rapid.Uint64Range(1, 3).Draw(r, "l")
			}
			back, err := decodeOffer(offers[i].encode())
			if err != nil || back != offers[i] {
				r.Fatalf("%+v became %+v: %v", offers[i], back, err)
			}
		}
		best, holders, lacking, err := agree(offers)
		if err != nil {
			r.Fatal(err)
		}
		won := offers[best]
		for i, o := range offers {
			worse := false // than this one
			switch {
			case o.standing == committed && won.standing == committed, o.standing != fresh && o.standing != committed && won.standing != committed:
				worse = won.standing == fresh || o.name.Compare(won.name) > 0 || (o.name == won.name && (o.standing > won.standing ||
					(o.standing == won.standing && o.hash.compare(won.hash) < 0)))
			default:
				worse = o.standing > won.standing
			}
			if worse {
				r.Fatalf("rank %d's %+v is newer than %+v", i, o, won)
			}
			if slices.Contains(holders, i) != (o.hash == won.hash) || slices.Contains(lacking, i) == (o.hash == won.hash) {
				r.Fatalf("rank %d is wrong in holders %v and lacking %v", i, holders, lacking)
			}
		}
		if won.standing == fresh && best != 0 {
			r.Fatalf("rank %d's start was chosen, want rank 0's", best)
		}
	})
}

// TestRoutesBringEachLeafOnceToThoseWhoLackIt, from somebody who has it, and load everybody evenly.
func TestRoutesBringEachLeafOnceToThoseWhoLackIt(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		world, n := rapid.IntRange(2, 30).Draw(r, "world"), rapid.IntRange(0, 60).Draw(r, "leaves")
		ranks := rapid.Permutation(upTo(world)).Draw(r, "ranks")
		h := rapid.IntRange(1, world-1).Draw(r, "holders")
		holders, lacking := slices.Sorted(slices.Values(ranks[:h])), slices.Sorted(slices.Values(ranks[h:]))
		all := rapid.Bool().Draw(r, "all of it")
		lacks, wanted := make([][]byte, world), 0
		for i := range lacks {
			lacks[i] = make([]byte, (n+7)/8)
		}
		some := make([]bool, n)
		for _, q := range lacking {
			for i := range n {
				if all || rapid.Bool().Draw(r, "lacks") {
					lacks[q][i/8] |= 1 << (i % 8)
					wanted, some[i] = wanted+1, true
				}
			}
		}
		routes := newRoutes(holders, lacking, lacks)
		errands := make([]errand, world)
		for q := range errands {
			errands[q] = routes.of(q, n)
		}
		got, sent := 0, make([]int, world)
		for q, e := range errands {
			seen := map[int]bool{}
			for from, leaves := range e.in {
				if !slices.Equal(leaves, errands[from].out[q]) || !slices.IsSorted(leaves) {
					r.Fatalf("rank %d expects %v of %d, which sends %v", q, leaves, from, errands[from].out[q])
				}
				for _, i := range leaves {
					if seen[i] || lacks[q][i/8]&(1<<(i%8)) == 0 {
						r.Fatalf("rank %d gets leaf %d for nothing", q, i)
					}
					if slices.Contains(lacking, from) && !slices.ContainsFunc(inOf(errands[from]), func(j int) bool { return i == j }) {
						r.Fatalf("rank %d gets leaf %d of %d, which never has it", q, i, from)
					}
					seen[i] = true
					got++
				}
			}
			for _, leaves := range e.out {
				sent[q] += len(leaves)
			}
		}
		if got != wanted {
			r.Fatalf("%d leaves arrive, %d are lacked", got, wanted)
		}
		lacked := len(slices.DeleteFunc(some, func(b bool) bool { return !b }))
		sources := min(h, max(maxSources, len(lacking)))
		for q := range sent {
			limit := n
			if slices.Contains(holders, q) {
				limit = (lacked + sources - 1) / sources
			}
			if sent[q] > limit {
				r.Fatalf("rank %d sends %d leaves, at most %d are its part", q, sent[q], limit)
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

func inOf(e errand) (all []int) {
	for _, leaves := range e.in {
		all = append(all, leaves...)
	}
	return all
}
