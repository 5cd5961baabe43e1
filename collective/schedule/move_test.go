package schedule

import (
	"fmt"
	"testing"
)

func TestAnAllgatherBringsEveryBlockEverywhere(t *testing.T) {
	for kind, a := range map[string]struct {
		fill  func(*Plan, Place, []int, int)
		steps func(int) int
	}{
		"ring":   {RingAllgather, func(w int) int { return w - 1 }},
		"direct": {DirectAllgather, func(w int) int { return min(1, w-1) }},
		"bruck":  {BruckAllgather, ceilLog},
	} {
		t.Run(kind, func(t *testing.T) {
			eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
				// Uneven on purpose: block i has (n+i)%5 elements, so some are empty.
				offsets, owner := []int{0}, []int{}
				for i := range world {
					offsets = append(offsets, offsets[i]+(n+i)%5)
					for range (n + i) % 5 {
						owner = append(owner, i)
					}
				}
				ranks := play(t, world, len(owner), buffered, func(r, i int) bool { return owner[i] == r },
					func(p *Plan, r Place) { a.fill(p, r, offsets, chunk) })
				total := 0
				for r, s := range ranks {
					total += s.elements
					for i, v := range s.buf {
						if v != name(owner[i]) {
							t.Fatalf("rank %d element %d is %q", r, i, v)
						}
					}
					if s.plan.Steps != a.steps(world) {
						t.Fatalf("plan promises %d steps, want %d", s.plan.Steps, a.steps(world))
					}
				}
				if total != (world-1)*len(owner) {
					t.Fatalf("%d elements were sent, promised %d", total, (world-1)*len(owner))
				}
			})
		})
	}
}

func TestABroadcastReachesEveryoneFromAnyRoot(t *testing.T) {
	for kind, a := range map[string]struct {
		fill func(*Plan, Place, int, int, int)
		most func(world, n int) int // elements that one rank sends
	}{
		"chain": {ChainBroadcast, func(_, n int) int { return n }},
		"tree":  {TreeBroadcast, func(w, n int) int { return ceilLog(w) * n }},
	} {
		t.Run(kind, func(t *testing.T) {
			eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
				for root := range world {
					ranks := play(t, world, n, buffered, func(r, _ int) bool { return r == root },
						func(p *Plan, r Place) { a.fill(p, r, root, n, chunk) })
					for r, s := range ranks {
						if s.elements > a.most(world, n) {
							t.Fatalf("rank %d sent %d elements, promised %d", r, s.elements, a.most(world, n))
						}
						for i, v := range s.buf {
							if v != name(root) {
								t.Fatalf("rank %d element %d is %q", r, i, v)
							}
						}
					}
				}
			})
		})
	}
}

func TestAnAlltoallHandsEveryBlockToItsRank(t *testing.T) {
	eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
		// Rank a has (a + 2b + n) % 4 elements for rank b.
		count := func(a, b int) int { return (a + 2*b + n) % 4 }
		net := &network{buffered: buffered, under: map[[2]int][]message{}, random: newRandom(world, n)}
		for r := range world {
			s := &rankState{}
			send, recv := []int{0}, []int{0}
			for q := range world {
				for range count(r, q) {
					s.src = append(s.src, fmt.Sprint(r, ">", q))
				}
				s.buf = append(s.buf, make([]string, count(q, r))...)
				send, recv = append(send, len(s.src)), append(recv, len(s.buf))
			}
			s.finished = make([]int, len(s.buf))
			Alltoall(&s.plan, Place{World: world, Rank: r}, send, recv, chunk)
			net.ranks = append(net.ranks, s)
		}
		net.run(t, -1)
		for r, s := range net.ranks {
			at := 0
			for q := range world {
				for range count(q, r) {
					if want := fmt.Sprint(q, ">", r); q != r && s.buf[at] != want {
						t.Fatalf("rank %d element %d is %q, want %q", r, at, s.buf[at], want)
					}
					at++
				}
			}
		}
	})
}

func TestABarrierHoldsUntilTheLastRankArrives(t *testing.T) {
	for world := 2; world <= 17; world++ {
		for late := range world {
			net := &network{buffered: true, under: map[[2]int][]message{}, random: newRandom(world, late)}
			for r := range world {
				s := &rankState{}
				Barrier(&s.plan, Place{World: world, Rank: r})
				if s.plan.Steps != ceilLog(world) || len(s.plan.Sends) != ceilLog(world) {
					t.Fatalf("world %d: %d steps", world, s.plan.Steps)
				}
				net.ranks = append(net.ranks, s)
			}
			for moved := true; moved; {
				moved = false
				for _, e := range net.events() {
					if e.rank != late && !moved {
						e.what()
						moved = true
					}
				}
			}
			for r, s := range net.ranks {
				if r != late && s.got == len(s.plan.Recvs) {
					t.Fatalf("world %d: rank %d passed the barrier before rank %d came", world, r, late)
				}
			}
		}
	}
}
