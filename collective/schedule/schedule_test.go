package schedule

import (
	"fmt"
	"testing"
)

// rankState executes one plan. The receives and the sends advance separately, as
// they do in the communicator.
type rankState struct {
	plan       Plan
	buf        []map[int]int // per element: whose contributions it holds, and how often
	sent, got  int
	inbox      [][]map[int]int
	bytes      int
	finishedBy []int
}

func clone(m map[int]int) map[int]int {
	c := make(map[int]int, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// simulate runs the plans in rounds until nothing moves and returns the number of
// rounds. In a round every rank may send one message, and receives what had been
// sent in it. lag > 0 starves one rank for that many rounds.
func simulate(t *testing.T, ranks []*rankState, starved, lag int) int {
	t.Helper()
	for round := 0; ; round++ {
		moved := round < lag
		type mail struct {
			to   int
			data []map[int]int
		}
		var post []mail
		for r, s := range ranks {
			if (r == starved && round < lag) || s.sent == len(s.plan.Sends) {
				continue
			}
			x := s.plan.Sends[s.sent]
			if x.After > s.got {
				continue
			}
			var data []map[int]int
			for i := x.Lo; i < x.Hi; i++ {
				data = append(data, clone(s.buf[i]))
			}
			s.sent++
			s.bytes += x.Hi - x.Lo
			post = append(post, mail{(r + 1) % len(ranks), data})
			moved = true
		}
		for _, m := range post {
			ranks[m.to].inbox = append(ranks[m.to].inbox, m.data)
		}
		for r, s := range ranks {
			for len(s.inbox) > 0 && !(r == starved && round < lag) {
				x := s.plan.Recvs[s.got]
				if x.After > s.sent {
					t.Fatalf("rank %d receive %d waits for send %d, of which %d are done: the causal order is broken", r, s.got, x.After, s.sent)
				}
				if len(s.inbox[0]) != x.Hi-x.Lo {
					t.Fatalf("rank %d receive %d: %d elements arrived, %d expected", r, s.got, len(s.inbox[0]), x.Hi-x.Lo)
				}
				for i, m := range s.inbox[0] {
					switch x.Action {
					case Copy:
						s.buf[x.Lo+i] = clone(m)
					case Reduce, Finish:
						for k, v := range m {
							s.buf[x.Lo+i][k] += v
						}
						if x.Action == Finish {
							s.finishedBy[x.Lo+i]++
						}
					}
				}
				s.inbox = s.inbox[1:]
				s.got++
			}
		}
		if !moved {
			for r, s := range ranks {
				if s.sent != len(s.plan.Sends) || s.got != len(s.plan.Recvs) {
					t.Fatalf("rank %d is stuck: sent %d of %d, received %d of %d", r, s.sent, len(s.plan.Sends), s.got, len(s.plan.Recvs))
				}
			}
			return round
		}
	}
}

func states(world, n int, own func(rank, i int) bool, fill func(*Plan, Ring)) []*rankState {
	var ranks []*rankState
	for r := range world {
		s := &rankState{buf: make([]map[int]int, n), finishedBy: make([]int, n)}
		for i := range n {
			s.buf[i] = map[int]int{}
			if own(r, i) {
				s.buf[i][r] = 1
			}
		}
		// Filled twice: memory of an earlier, larger plan must not show.
		Allreduce(&s.plan, Ring{World: world, Rank: r}, 3*n+5, 1)
		fill(&s.plan, Ring{World: world, Rank: r})
		ranks = append(ranks, s)
	}
	return ranks
}

var lengths = []int{0, 1, 2, 3, 5, 8, 16, 17, 18, 33, 40}

func eachCase(t *testing.T, run func(t *testing.T, world, n, chunk int)) {
	for world := 1; world <= 17; world++ {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			for _, n := range lengths {
				for _, chunk := range []int{1, 2, 7, 1000} {
					run(t, world, n, chunk)
				}
			}
		})
	}
}

func everyoneHasAll(t *testing.T, ranks []*rankState) {
	t.Helper()
	for r, s := range ranks {
		for i, m := range s.buf {
			if len(m) != len(ranks) {
				t.Fatalf("rank %d element %d has the contributions %v", r, i, m)
			}
			for k, v := range m {
				if v != 1 {
					t.Fatalf("rank %d element %d has rank %d's contribution %d times", r, i, k, v)
				}
			}
		}
	}
}

func TestAllreduceGivesEveryoneEveryContributionOnce(t *testing.T) {
	eachCase(t, func(t *testing.T, world, n, chunk int) {
		for _, lag := range []int{0, 9} {
			ranks := states(world, n, func(int, int) bool { return true },
				func(p *Plan, r Ring) { Allreduce(p, r, n, chunk) })
			rounds := simulate(t, ranks, world/2, lag)
			everyoneHasAll(t, ranks)
			if lag == 0 && chunk == 1000 && rounds != 2*(world-1) {
				t.Fatalf("%d rounds, promised %d", rounds, 2*(world-1))
			}
			total := 0
			for r, s := range ranks {
				if s.plan.Steps != 2*(world-1) {
					t.Fatalf("plan promises %d steps", s.plan.Steps)
				}
				total += s.bytes
				if most := 2 * (world - 1) * ((n + world - 1) / world); s.bytes > most {
					t.Fatalf("rank %d sent %d elements, promised at most %d", r, s.bytes, most)
				}
			}
			if total != 2*(world-1)*n {
				t.Fatalf("%d elements crossed the ring, promised %d", total, 2*(world-1)*n)
			}
			for i := range n {
				owners := 0
				for _, s := range ranks {
					owners += s.finishedBy[i]
				}
				if world > 1 && owners != 1 {
					t.Fatalf("element %d was finished %d times", i, owners)
				}
			}
		}
	})
}

func TestReduceScatterLeavesEachSegmentAtItsOwner(t *testing.T) {
	eachCase(t, func(t *testing.T, world, n, chunk int) {
		ranks := states(world, n, func(int, int) bool { return true },
			func(p *Plan, r Ring) { ReduceScatter(p, r, n, chunk) })
		rounds := simulate(t, ranks, 0, 0)
		if chunk == 1000 && rounds != world-1 {
			t.Fatalf("%d rounds, promised %d", rounds, world-1)
		}
		for r, s := range ranks {
			lo, hi := Segment(n, world, (r+1)%world)
			for i := lo; i < hi; i++ {
				if len(s.buf[i]) != world {
					t.Fatalf("rank %d element %d has %v", r, i, s.buf[i])
				}
			}
		}
	})
}

func TestAllgatherBringsEveryBlockEverywhere(t *testing.T) {
	eachCase(t, func(t *testing.T, world, n, chunk int) {
		// Uneven on purpose: block i has (n+i)%5 elements, so some are empty.
		offsets := []int{0}
		for i := range world {
			offsets = append(offsets, offsets[i]+(n+i)%5)
		}
		size := offsets[world]
		owner := func(i int) int {
			for r := range world {
				if i >= offsets[r] && i < offsets[r+1] {
					return r
				}
			}
			return -1
		}
		ranks := states(world, size, func(r, i int) bool { return owner(i) == r },
			func(p *Plan, r Ring) { Allgather(p, r, offsets, chunk) })
		rounds := simulate(t, ranks, world-1, 0)
		if chunk == 1000 && rounds != world-1 {
			t.Fatalf("%d rounds, promised %d", rounds, world-1)
		}
		total := 0
		for r, s := range ranks {
			total += s.bytes
			for i, m := range s.buf {
				if len(m) != 1 || m[owner(i)] != 1 {
					t.Fatalf("rank %d element %d has %v", r, i, m)
				}
			}
		}
		if total != (world-1)*size {
			t.Fatalf("%d elements crossed the ring, promised %d", total, (world-1)*size)
		}
	})
}

func TestBroadcastReachesEveryoneFromAnyRoot(t *testing.T) {
	eachCase(t, func(t *testing.T, world, n, chunk int) {
		for root := range world {
			ranks := states(world, n, func(r, _ int) bool { return r == root },
				func(p *Plan, r Ring) { Broadcast(p, r, root, n, chunk) })
			rounds := simulate(t, ranks, -1, 0)
			if rounds != ranks[0].plan.Steps {
				t.Fatalf("%d rounds, promised %d", rounds, ranks[0].plan.Steps)
			}
			for r, s := range ranks {
				want := n
				if (r+1)%world == root {
					want = 0
				}
				if s.bytes != want {
					t.Fatalf("rank %d sent %d elements, promised %d", r, s.bytes, want)
				}
				for i, m := range s.buf {
					if len(m) != 1 || m[root] != 1 {
						t.Fatalf("rank %d element %d has %v", r, i, m)
					}
				}
			}
		}
	})
}

func TestBarrierHoldsUntilTheLastRankArrives(t *testing.T) {
	for world := 1; world <= 17; world++ {
		for late := range world {
			ranks := states(world, 0, nil, Barrier)
			if rounds := simulate(t, ranks, -1, 0); rounds != world-1 {
				t.Fatalf("world %d: %d rounds", world, rounds)
			}
			// With one rank that sends nothing, nobody else may get through.
			ranks = states(world, 0, nil, Barrier)
			for range 3 * world {
				for r, s := range ranks {
					if r != late && s.sent < len(s.plan.Sends) && s.plan.Sends[s.sent].After <= s.got {
						s.sent++
						ranks[(r+1)%world].got++
					}
				}
			}
			for r, s := range ranks {
				if r != late && s.got == len(s.plan.Recvs) {
					t.Fatalf("world %d: rank %d passed the barrier before rank %d came", world, r, late)
				}
			}
		}
	}
}

func TestSegmentsCoverTheBufferInOrder(t *testing.T) {
	for world := 1; world <= 17; world++ {
		for n := range 70 {
			at := 0
			for i := range world {
				lo, hi := Segment(n, world, i)
				if lo != at || hi < lo || hi-lo > n/world+1 || hi-lo < n/world {
					t.Fatalf("Segment(%d, %d, %d) = %d, %d after %d", n, world, i, lo, hi, at)
				}
				at = hi
			}
			if at != n {
				t.Fatalf("n %d world %d: segments end at %d", n, world, at)
			}
		}
	}
	const huge = int(^uint(0) >> 1)
	if lo, hi := Segment(huge, 16, 15); lo <= 0 || hi != huge {
		t.Fatalf("Segment overflows: %d, %d", lo, hi)
	}
}

func TestRefillingAPlanAllocatesNothing(t *testing.T) {
	var p Plan
	r := Ring{World: 4, Rank: 1}
	Allreduce(&p, r, 1000, 10)
	if n := testing.AllocsPerRun(20, func() { Allreduce(&p, r, 1000, 10) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
