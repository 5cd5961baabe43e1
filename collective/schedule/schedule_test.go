package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// rankState executes one plan. Elements are expressions: what was combined with what,
// in which order. Equal expressions on all ranks are equal bits.
type rankState struct {
	plan      Plan
	src, buf  []string // the same for all but an all-to-all
	slots     [][]string
	sent, got int
	aside     []string // arrived, and waits for its After
	arrived   bool
	elements  int // sent
	finished  []int
}

type message struct {
	from, to int
	data     []string
}

// network carries letters between ranks in a random order of events. Without buffers a
// message arrives in the moment in which it leaves; with them it leaves at once.
type network struct {
	ranks    []*rankState
	buffered bool
	under    map[[2]int][]message // way, by sender and receiver
	random   *rand.Rand
}

// event is one thing that can happen now.
type event struct {
	rank int
	what func()
}

func (n *network) events() (all []event) {
	for r, s := range n.ranks {
		if s.arrived && s.plan.Recvs[s.got].After <= s.sent {
			all = append(all, event{r, func() { n.apply(s) }})
		}
		if n.buffered && n.open(s) {
			if way := [2]int{s.plan.Recvs[s.got].Peer, r}; len(n.under[way]) > 0 {
				all = append(all, event{r, func() {
					n.arrive(s, n.under[way][0].data)
					n.under[way] = n.under[way][1:]
				}})
			}
		}
		if s.sent == len(s.plan.Sends) || s.plan.Sends[s.sent].After > s.got {
			continue
		}
		x := s.plan.Sends[s.sent]
		leave := func() []string {
			data := append([]string(nil), s.src[x.Lo:x.Hi]...)
			s.sent++
			s.elements += len(data)
			return data
		}
		to := n.ranks[x.Peer]
		if n.buffered {
			way := [2]int{r, x.Peer}
			all = append(all, event{r, func() { n.under[way] = append(n.under[way], message{r, x.Peer, leave()}) }})
		} else if n.open(to) && to.plan.Recvs[to.got].Peer == r {
			all = append(all, event{r, func() { n.arrive(to, leave()) }})
		}
	}
	return all
}

// open tells whether a rank can take the next message in.
func (n *network) open(s *rankState) bool {
	if s.arrived || s.got == len(s.plan.Recvs) {
		return false
	}
	x := s.plan.Recvs[s.got]
	return x.Action != Copy || x.After <= s.sent
}

func (n *network) arrive(s *rankState, data []string) {
	s.aside, s.arrived = data, true
	if s.plan.Recvs[s.got].Action == Copy {
		n.apply(s)
	}
}

func (n *network) apply(s *rankState) {
	x := s.plan.Recvs[s.got]
	if len(s.aside) != x.Hi-x.Lo {
		panic(fmt.Sprintf("%d elements arrived, %d expected", len(s.aside), x.Hi-x.Lo))
	}
	for i, v := range s.aside {
		e := x.Lo + i
		switch x.Action {
		case Copy:
			s.buf[e] = v
		case Under:
			s.buf[e] = join(v, s.buf[e])
		case Stash:
			s.slots[x.Slot][e-s.plan.Fold.Lo] = v
		default:
			s.buf[e] = join(s.buf[e], v)
			if x.Action == Finish {
				s.finished[e]++
			}
		}
	}
	s.got++
	s.arrived = false
}

func join(a, b string) string { return "(" + a + b + ")" }

// run lets things happen until nothing can, then folds. starved ranks come last.
func (n *network) run(t *testing.T, starved int) {
	t.Helper()
	for {
		all := n.events()
		if len(all) == 0 {
			break
		}
		pick := all[n.random.IntN(len(all))]
		for _, e := range all {
			if pick.rank == starved {
				pick = e
			}
		}
		pick.what()
	}
	for r, s := range n.ranks {
		if s.sent != len(s.plan.Sends) || s.got != len(s.plan.Recvs) {
			t.Fatalf("rank %d is stuck: sent %d of %d, received %d of %d (buffers: %v)", r, s.sent, len(s.plan.Sends), s.got, len(s.plan.Recvs), n.buffered)
		}
		if len(n.under) > 0 {
			for way, l := range n.under {
				if len(l) > 0 {
					t.Fatalf("%d letters from rank %d to rank %d were never received", len(l), way[0], way[1])
				}
			}
		}
		s.finish(r)
	}
}

// finish folds the slots and does what is done once per element.
func (s *rankState) finish(rank int) {
	span := Span{0, len(s.buf)}
	if s.plan.Slots > 0 {
		span = s.plan.Fold
		for e := span.Lo; e < span.Hi; e++ {
			sum := ""
			for r := range s.plan.Slots + 1 {
				v := s.buf[e]
				if r < rank {
					v = s.slots[r][e-span.Lo]
				} else if r > rank {
					v = s.slots[r-1][e-span.Lo]
				}
				if sum == "" {
					sum = v
				} else {
					sum = join(sum, v)
				}
			}
			s.buf[e] = sum
		}
	}
	if s.plan.Finish {
		for e := span.Lo; e < span.Hi; e++ {
			s.finished[e]++
		}
	}
}

func newRandom(a, b int) *rand.Rand { return rand.New(rand.NewPCG(uint64(a), uint64(b))) }

// name is a rank's contribution.
func name(rank int) string { return string(rune('a' + rank)) }

// play fills the plans and runs them. own says which elements a rank brings.
func play(t *testing.T, world, n int, buffered bool, own func(rank, i int) bool, fill func(*Plan, Place)) []*rankState {
	t.Helper()
	net := &network{buffered: buffered, under: map[[2]int][]message{}, random: newRandom(world, n)}
	for r := range world {
		s := &rankState{buf: make([]string, n), finished: make([]int, n)}
		for i := range n {
			if own(r, i) {
				s.buf[i] = name(r)
			}
		}
		s.src = s.buf
		// Filled twice: memory of an earlier, larger plan must not show.
		RingAllreduce(&s.plan, Place{World: world, Rank: r}, 3*n+5, 1)
		fill(&s.plan, Place{World: world, Rank: r})
		for range s.plan.Slots {
			s.slots = append(s.slots, make([]string, s.plan.Fold.Len()))
		}
		net.ranks = append(net.ranks, s)
	}
	starved := world / 2
	if n%2 == 0 {
		starved = -1
	}
	net.run(t, starved)
	return net.ranks
}

var lengths = []int{0, 1, 2, 5, 8, 17, 33}

func eachCase(t *testing.T, run func(t *testing.T, world, n, chunk int, buffered bool)) {
	for world := 1; world <= 17; world++ {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			for _, n := range lengths {
				for _, chunk := range []int{1, 7, 1000} {
					for _, buffered := range []bool{false, true} {
						run(t, world, n, chunk, buffered)
					}
				}
			}
		})
	}
}

// holdsAll checks that an element has every rank's contribution once.
func holdsAll(t *testing.T, world, rank, i int, v string) {
	t.Helper()
	for r := range world {
		if c := strings.Count(v, name(r)); c != 1 {
			t.Fatalf("rank %d element %d = %q: rank %d contributed %d times", rank, i, v, r, c)
		}
	}
}

func everyone(int, int) bool { return true }
