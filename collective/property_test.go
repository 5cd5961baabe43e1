package collective

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective/internal/exec"
	"github.com/regroup-io/regroup/collective/kernel"
)

// seeds is how often the programs are drawn anew: for a night.
var seeds = flag.Int("seeds", 1, "random programs per setting")

var worlds = []int{1, 2, 3, 4, 5, 7, 8}

// known are the operations that have a choice, and their algorithms.
var known = []struct {
	operation  string
	algorithms []exec.Algorithm
}{
	{"Allreduce", []exec.Algorithm{exec.Direct, exec.Doubling, exec.Halving, exec.Ring}},
	{"ReduceScatter", []exec.Algorithm{exec.Direct, exec.Ring}},
	{"Allgather", []exec.Algorithm{exec.Direct, exec.Bruck, exec.Ring}},
	{"Broadcast", []exec.Algorithm{exec.Tree, exec.Ring}},
	{"Reduce", []exec.Algorithm{exec.Direct, exec.Tree, exec.Ring}},
}

// forced is a table that has every operation use an algorithm that knows it.
func forced(a exec.Algorithm) (table []exec.Rule) {
	for _, k := range known {
		if slices.Contains(k.algorithms, a) {
			table = append(table, exec.Rule{Operation: k.operation, Algorithm: a})
		}
	}
	return table
}

var algorithms = []exec.Algorithm{"", exec.Direct, exec.Doubling, exec.Halving, exec.Ring, exec.Tree, exec.Bruck}

// settings are those of a run, on which nothing but its speed may depend.
type settings struct {
	world         int
	a             exec.Algorithm
	inline, chunk int
	streams       int
}

func (s settings) String() string {
	return fmt.Sprintf("world=%d,algorithm=%s,inline=%d,chunk=%d,streams=%d", s.world, s.a, s.inline, s.chunk, s.streams)
}

func (s settings) apply(o *Options) {
	o.InlineBytes, o.ChunkBytes, o.Streams = s.inline, s.chunk, s.streams
	if s.a != "" {
		o.table = forced(s.a)
	}
}

// vary is every world and algorithm, with one and with two threads, and the other settings in turn.
func vary(seed int) (all []settings) {
	i := seed
	for _, a := range algorithms {
		for _, world := range worlds {
			for _, inline := range []int{0, -1} {
				i++
				all = append(all, settings{world, a, inline, []int{0, 1, 100, 4 << 10, 0}[i%5], []int{1, 3}[i/2%2]})
			}
		}
	}
	return all
}

// TestRandomProgramsGiveWhatOneProcessWould: every operation, on every type, with every reduction,
// by every algorithm, over every transport.
func TestRandomProgramsGiveWhatOneProcessWould(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for seed := range *seeds {
			for i, s := range vary(seed) {
				if f.name == "shm" && s.a != "" && s.a != exec.Ring {
					continue // they do not matter in shared memory
				}
				if raced && i%3 != seed%3 {
					continue
				}
				t.Run(fmt.Sprintf("%v,seed=%d", s, seed), func(t *testing.T) {
					runProgram(t, f, s, uint64(seed)<<32+uint64(i))
				})
			}
		}
	})
}

func runProgram(t *testing.T, f fabric, s settings, seed uint64) {
	most := 60_000
	if s.chunk == 1 { // a message for each element
		most = 40
	}
	play(t, group(t, f, s.world, s.apply), seed, most)
}

// play has the ranks run a random program of all operations, on up to so many elements, and checks
// the results.
func play(t *testing.T, comms []*Communicator, seed uint64, most int) {
	rng, world := rand.New(rand.NewPCG(seed, 1)), len(comms)
	var program []step
	for _, name := range stepNames {
		n := min(most, 3000)
		if rng.IntN(6) == 0 {
			n = most
		}
		program = append(program, draw(rng, name, world, n))
	}
	rng.Shuffle(len(program), func(i, j int) { program[i], program[j] = program[j], program[i] })
	got := make([][][]byte, len(program))
	for i := range got {
		got[i] = make([][]byte, world)
	}
	ctx := soon(t)
	mustAll(t, world, func(r int) (err error) {
		rng := rand.New(rand.NewPCG(seed, uint64(r)+2))
		for i, step := range program {
			if got[i][r], err = step.run(ctx, comms[r], rng); err != nil {
				return fmt.Errorf("rank %d: %v: %w", r, step, err)
			}
		}
		return nil
	})
	for i, step := range program {
		if err := step.check(got[i]); err != nil {
			t.Errorf("%v: %v", step, err)
		}
	}
}

// TestEveryTypeAndReductionGivesTheSameBits runs all of them, on numbers of all kinds, for each
// algorithm that reduces and in shared memory.
func TestEveryTypeAndReductionGivesTheSameBits(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, a := range []exec.Algorithm{exec.Direct, exec.Doubling, exec.Halving, exec.Ring} {
			if f.name == "shm" && a != exec.Ring {
				continue
			}
			for _, world := range []int{3, 4} {
				t.Run(fmt.Sprintf("%s/%d", a, world), func(t *testing.T) {
					comms := group(t, f, world, settings{a: a, chunk: 500, streams: 1}.apply)
					everyReduction(t, comms)
				})
			}
		}
	})
}

func everyReduction(t *testing.T, comms []*Communicator) {
	ctx, n := soon(t), 1501
	if raced {
		n = 301
	}
	for _, typ := range allTypes {
		for op := Sum; op <= Max; op++ {
			for _, kind := range []flavour{exact, special, random} {
				steps := []step{{name: "Allreduce", t: typ, op: op, n: n, f: kind, seed: 7}}
				if typ == kernel.Float32 {
					for _, wire := range []kernel.Type{kernel.Float16, kernel.BFloat16} {
						steps = append(steps, step{name: "AllreduceAs", t: typ, wire: wire, op: op, n: n, f: kind, seed: 8})
					}
				}
				for _, s := range steps {
					got := make([][]byte, len(comms))
					mustAll(t, len(comms), func(r int) (err error) {
						got[r], err = s.run(ctx, comms[r], rand.New(rand.NewPCG(1, uint64(r))))
						return err
					})
					if err := s.check(got); err != nil {
						t.Errorf("%v: %v", s, err)
					}
				}
			}
		}
	}
}
