package reproducible

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/internal/race"
)

var histories = flag.Int("histories", map[bool]int{false: 60, true: 15}[race.Enabled], "random histories of deaths and arrivals")

// fate is what becomes of a worker: it dies when one comes to a place for the first time, itself or
// another one, who does not know where it is then.
type fate struct {
	killer string
	step   uint64
	where  moment
	after  int // of such moments in the step
	// later is how long after that, so that it is in the middle of an operation.
	later time.Duration
}

// history is one random life of a job.
type history struct {
	program program
	world   int
	fates   map[string]fate
	// immortal is a worker of the first generation that does not die.
	immortal string
	arrive   map[uint64]string // newcomers, by the step at which they are started

	mu      sync.Mutex
	passed  map[string]int // of the moments that count
	started map[string]bool
	died    map[string]uint64 // in which step, known in the end

	seen  int    // the most members; of the hub's lock
	forms uint64 // generations; likewise
}

func newHistory(seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 17))
	h := &history{
		program: program{samples: 50 + rng.IntN(60), global: 10 + rng.IntN(20), micro: 1 + rng.IntN(6), epochs: 2, every: 1},
		world:   1 + rng.IntN(5), fates: map[string]fate{}, arrive: map[uint64]string{},
		passed: map[string]int{}, started: map[string]bool{}, died: map[string]uint64{},
	}
	if rng.IntN(4) == 0 {
		h.program.every = 3
	}
	h.program.live = rng.IntN(2) == 0
	names := []string{}
	for i := range h.world {
		names = append(names, fmt.Sprint("w", i))
	}
	h.immortal = names[rng.IntN(h.world)]
	for i := range rng.IntN(4) {
		name := fmt.Sprint("x", i)
		h.arrive[uint64(rng.IntN(6))] = name
		names = append(names, name)
	}
	for _, name := range names {
		if name != h.immortal && rng.IntN(3) > 0 {
			killer := []string{name, name, h.immortal}[rng.IntN(3)]
			later := time.Duration(max(0, rng.IntN(3000)-2000)) * time.Microsecond
			h.fates[name] = fate{killer, uint64(rng.IntN(8)), moment(rng.IntN(int(moments))), rng.IntN(3), later}
		}
	}
	if rng.IntN(2) == 0 { // shares that move
		h.program.pace = func(w *worker, step uint64) float64 {
			return 1 + float64((step/2*7+uint64(w.name[1])*5)%9)
		}
	}
	if rng.IntN(3) == 0 {
		h.program.witness = 1 + rng.IntN(6)
	}
	if rng.IntN(3) == 0 { // gradients that grow at some time
		at := uint64(rng.IntN(6))
		h.program.gradient = func(_ *worker, step uint64, m int, _ []int, mean []float32) {
			if step == at && m == 0 {
				for k := range mean {
					mean[k] *= 1e7
				}
			}
		}
	}
	return h
}

// play plays it.
func (h *history) play(t *testing.T) (all, completed []*worker) {
	p := h.program
	f := newFleet(t, &p, h.world)
	f.hub.OnSeal = func(generation uint64, members []string) { // under the hub's lock, so without h.mu
		h.forms, h.seen = generation, max(h.seen, len(members))
	}
	p.at = func(w *worker, s *elastic.Session, where moment) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if name, ok := h.arrive[s.Step()]; ok && where == beforeMicro && !h.started[name] {
			h.started[name] = true
			f.start(name, true)
		}
		if where == beforeStep && w.name == h.immortal && len(h.started) > 0 {
			h.mu.Unlock()
			f.awaitNewcomers(s.Generation) // or the training would be over before they are there
			h.mu.Lock()
		}
		for name, fate := range h.fates {
			_, dead := h.died[name]
			if dead || fate.killer != w.name || s.Step() < fate.step || where != fate.where || name[0] == 'x' && !h.started[name] {
				continue
			}
			if h.passed[name]++; h.passed[name] > fate.after || where == beforeStep || where >= beforeUpdate {
				h.died[name] = 0
				if fate.later > 0 {
					f.wait.Go(func() {
						<-time.After(fate.later)
						f.hub.Kill(name)
					})
					continue
				}
				f.hub.Kill(name)
			}
		}
	}
	completed = f.run()
	for _, w := range f.workers {
		delete(h.died, w.name)
		if errors.Is(w.err, elastictest.ErrKilled) {
			h.died[w.name] = w.step
		}
	}
	return f.workers, completed
}

// awaitNewcomers waits a little until all who were started are members, or others are.
func (f *fleet) awaitNewcomers(generation uint64) {
	f.hub.Wait(f.t.Context(), 20*time.Millisecond, func() bool {
		for name := range f.hub.Alive {
			if !slices.Contains(f.hub.Members, name) {
				return f.hub.Generation != generation
			}
		}
		return true
	})
}

// check wants of each step that there are workers who have computed each of its micro-batches once,
// all who have survived it among them: of those who died in it some may have died when all others
// had the step already. So nothing was computed again but what only dead workers had.
func (h *history) check(workers []*worker) error {
	byStep := map[uint64]map[string]map[int]int{} // worker, micro-batch
	for _, w := range workers {
		for _, c := range w.calls {
			if byStep[c.step] == nil {
				byStep[c.step] = map[string]map[int]int{}
			}
			if byStep[c.step][w.name] == nil {
				byStep[c.step][w.name] = map[int]int{}
			}
			byStep[c.step][w.name][c.m]++
		}
	}
	for step, of := range byStep {
		count := 0
		for _, ms := range of {
			for m := range ms {
				count = max(count, m+1)
			}
		}
		var dead []string
		for name, at := range h.died {
			// Who was the first to know of a commit, and died, may have died in the step after it.
			if _, took := of[name]; took && (at == step || at == step+1) {
				dead = append(dead, name)
			}
		}
		possible := false
		for set := range 1 << len(dead) {
			left := map[string]bool{}
			for i, name := range dead {
				left[name] = set>>i&1 == 0
			}
			once := true
			for m := range count {
				n := 0
				for name, ms := range of {
					if !left[name] {
						n += ms[m]
					}
				}
				once = once && n == 1
			}
			possible = possible || once
		}
		if !possible {
			return fmt.Errorf("step %d, in which %v died: computed were %v", step, dead, of)
		}
	}
	return nil
}

// TestHistories: whichever members die and come, at any moment, the bits are those of one worker
// alone, and no micro-batch is computed again that a survivor had.
func TestHistories(t *testing.T) {
	var mu sync.Mutex
	deaths, within, joined, again, exact := 0, 0, 0, 0, 0
	t.Run("all", func(t *testing.T) {
		const parts = 4
		for part := range parts {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < *histories; seed += parts {
					h := newHistory(uint64(seed))
					want := alone(t, h.program)
					all, completed := h.play(t)
					same(t, want, completed)
					mu.Lock()
					deaths += len(h.died)
					if h.seen > h.world || h.forms > uint64(len(h.died))+1 {
						joined++
					}
					calls := 0
					for _, w := range all {
						calls += len(w.calls)
					}
					again += calls - len(want.calls)
					for name := range h.died {
						if h.fates[name].where > beforeStep && h.fates[name].where < beforeCommit {
							within++
						}
					}
					// Where nothing is copied, nothing is taken back.
					for _, w := range all {
						if h.program.every == 1 && h.program.live && !slices.IsSortedFunc(w.updates, rising) {
							t.Errorf("history %d: %s has made steps again: %v", seed, w.name, w.updates)
						}
					}
					// Where steps are made again on purpose, their micro-batches are too, and
					// witnesses compute what others have.
					if h.program.every == 1 && h.program.gradient == nil && h.program.witness == 0 {
						exact++
						if err := h.check(h.without(all)); err != nil {
							t.Errorf("history %d: %v", seed, err)
						}
					}
					mu.Unlock()
					if t.Failed() {
						t.Fatalf("history %d: %d workers, dead %v, of %+v", seed, h.world, h.died, h.fates)
					}
				}
			})
		}
	})
	t.Logf("%d histories, %d of them counted: %d deaths, %d of them within a step, %d with newcomers; %d micro-batches computed more often than by one worker", *histories, exact, deaths, within, joined, again)
	if deaths < *histories/2 || within < *histories/4 || joined < *histories/10 {
		t.Error("too little happens in these histories")
	}
}

// rising makes of equal steps ones that are not in order.
func rising(a, b uint64) int {
	if a == b {
		return -1
	}
	return cmp.Compare(a, b)
}

// without leaves out the look at the magnitudes before the first step, which takes micro-batch 0.
func (h *history) without(workers []*worker) []*worker {
	for _, w := range workers {
		for len(w.calls) > 0 && w.calls[0] == (call{}) && len(w.calls) > 1 && w.calls[1] == (call{}) {
			w.calls = w.calls[1:]
		}
	}
	return workers
}
