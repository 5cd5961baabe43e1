package schedule

import (
	"fmt"
	"strings"
	"testing"
)

type filler = func(p *Plan, r Place, n, chunk int)

var allreduces = map[string]struct {
	fill   filler
	steps  func(world int) int
	volume func(world, n int) int // elements that a rank sends at most
}{
	"ring":     {RingAllreduce, func(w int) int { return 2 * (w - 1) }, func(w, n int) int { return 2 * (w - 1) * ((n + w - 1) / w) }},
	"direct":   {DirectAllreduce, func(w int) int { return min(1, w-1) }, func(w, n int) int { return (w - 1) * n }},
	"doubling": {DoublingAllreduce, cubeSteps(1), func(w, n int) int { return (floorLog(w) + 1) * n }},
	"halving":  {HalvingAllreduce, cubeSteps(2), func(w, n int) int { return 3*n + 2*w }},
}

func floorLog(w int) (k int) {
	for ; w > 1; w /= 2 {
		k++
	}
	return k
}

func ceilLog(w int) int { return floorLog(2*w - 1) }

func cubeSteps(each int) func(int) int {
	return func(w int) int {
		steps := each * floorLog(w)
		if w != 1<<floorLog(w) {
			steps += 2
		}
		return steps
	}
}

func TestAnAllreduceGivesEveryoneTheSameExpression(t *testing.T) {
	for kind, a := range allreduces {
		t.Run(kind, func(t *testing.T) {
			eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
				ranks := play(t, world, n, buffered, everyone, func(p *Plan, r Place) { a.fill(p, r, n, chunk) })
				for i := range n {
					holdsAll(t, world, 0, i, ranks[0].buf[i])
					finishers := 0
					for r, s := range ranks {
						if s.buf[i] != ranks[0].buf[i] {
							t.Fatalf("element %d is %q on rank 0 and %q on rank %d", i, ranks[0].buf[i], s.buf[i], r)
						}
						if s.finished[i] > 1 {
							t.Fatalf("rank %d finished element %d %d times", r, i, s.finished[i])
						}
						finishers += s.finished[i]
					}
					if finishers != world && (kind != "ring" || finishers != 1) && world > 1 {
						t.Fatalf("%d ranks finish element %d", finishers, i)
					}
				}
				for r, s := range ranks {
					if s.plan.Steps != a.steps(world) {
						t.Fatalf("plan promises %d steps, want %d", s.plan.Steps, a.steps(world))
					}
					if most := a.volume(world, n); s.elements > most {
						t.Fatalf("rank %d sent %d elements, promised at most %d", r, s.elements, most)
					}
				}
			})
		})
	}
}

func TestDirectPlansCombineInTheOrderOfTheRanks(t *testing.T) {
	for _, s := range play(t, 4, 2, false, everyone, func(p *Plan, r Place) { DirectAllreduce(p, r, 2, 1) }) {
		if s.buf[1] != "(((ab)c)d)" {
			t.Fatal(s.buf[1])
		}
	}
}

func TestADoublingCombinesInTheOrderOfTheRanks(t *testing.T) {
	for _, s := range play(t, 6, 1, true, everyone, func(p *Plan, r Place) { DoublingAllreduce(p, r, 1, 1) }) {
		if plain := strings.NewReplacer("(", "", ")", "").Replace(s.buf[0]); plain != "abcdef" {
			t.Fatal(s.buf[0])
		}
	}
}

func TestAReduceScatterLeavesEachSegmentAtItsRank(t *testing.T) {
	for kind, fill := range map[string]filler{"ring": RingReduceScatter, "direct": DirectReduceScatter} {
		t.Run(kind, func(t *testing.T) {
			eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
				ranks := play(t, world, n, buffered, everyone, func(p *Plan, r Place) { fill(p, r, n, chunk) })
				for r, s := range ranks {
					mine := Segment(n, world, r)
					for i := mine.Lo; i < mine.Hi; i++ {
						holdsAll(t, world, r, i, s.buf[i])
						if world > 1 && s.finished[i] != 1 {
							t.Fatalf("element %d was finished %d times", i, s.finished[i])
						}
					}
				}
			})
		})
	}
}

func TestAReduceBringsEverythingToAnyRoot(t *testing.T) {
	for kind, fill := range map[string]func(*Plan, Place, int, int, int){"chain": ChainReduce, "tree": TreeReduce, "direct": DirectReduce} {
		t.Run(kind, func(t *testing.T) {
			eachCase(t, func(t *testing.T, world, n, chunk int, buffered bool) {
				for root := range world {
					ranks := play(t, world, n, buffered, everyone, func(p *Plan, r Place) { fill(p, r, root, n, chunk) })
					for i, v := range ranks[root].buf {
						holdsAll(t, world, root, i, v)
						if world > 1 && ranks[root].finished[i] != 1 {
							t.Fatalf("element %d was finished %d times", i, ranks[root].finished[i])
						}
					}
				}
			})
		})
	}
}

func TestSegmentsCoverTheBufferInOrder(t *testing.T) {
	for world := 1; world <= 17; world++ {
		for n := range 70 {
			at := 0
			for i := range world {
				s := Segment(n, world, i)
				if s.Lo != at || s.Hi < s.Lo || s.Len() > n/world+1 || s.Len() < n/world {
					t.Fatalf("Segment(%d, %d, %d) = %v after %d", n, world, i, s, at)
				}
				at = s.Hi
			}
			if at != n {
				t.Fatalf("n %d world %d: segments end at %d", n, world, at)
			}
		}
	}
	const huge = int(^uint(0) >> 1)
	if s := Segment(huge, 16, 15); s.Lo <= 0 || s.Hi != huge {
		t.Fatalf("Segment overflows: %v", s)
	}
}

func TestRefillingAPlanAllocatesNothing(t *testing.T) {
	var p Plan
	r := Place{World: 5, Rank: 1}
	offsets := []int{0, 1, 2, 3, 4, 5}
	for kind, fill := range map[string]func(){
		"ring":     func() { RingAllreduce(&p, r, 1000, 10) },
		"direct":   func() { DirectAllreduce(&p, r, 1000, 10) },
		"doubling": func() { DoublingAllreduce(&p, r, 1000, 10) },
		"halving":  func() { HalvingAllreduce(&p, r, 1000, 10) },
		"bruck":    func() { BruckAllgather(&p, r, offsets, 10) },
		"tree":     func() { TreeBroadcast(&p, r, 2, 1000, 10) },
		"chain":    func() { ChainReduce(&p, r, 2, 1000, 10) },
	} {
		fill()
		if n := testing.AllocsPerRun(20, fill); n != 0 {
			t.Errorf("%s: %v allocations", kind, n)
		}
	}
}

func ExampleDirectAllreduce() {
	var p Plan
	DirectAllreduce(&p, Place{World: 3, Rank: 1}, 10, 100)
	for _, t := range p.Sends {
		fmt.Printf("send [%d, %d) to rank %d\n", t.Lo, t.Hi, t.Peer)
	}
	for _, t := range p.Recvs {
		fmt.Printf("keep what comes from rank %d in slot %d\n", t.Peer, t.Slot)
	}
	// Output:
	// send [0, 10) to rank 2
	// send [0, 10) to rank 0
	// keep what comes from rank 0 in slot 0
	// keep what comes from rank 2 in slot 1
}
