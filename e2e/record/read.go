// Package record reads the records of the workers of e2e/recorder and determines, independently of
// Regroup's code, which steps count and that each of their samples occurs exactly once.
//
// Which steps count follows from where each generation began. Going back from the last one: a
// generation's steps count up to the step at which a later one began; its further steps are void. A
// step that counts was made by all ranks of its generation, so the records of each of them must
// have it.
package record

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// History is the records of all workers of a job.
type History struct {
	Generations []*Generation // in order
	Ends        []End
}

// Generation is one generation as its members recorded it. Generations that never trained are not
// recorded.
type Generation struct {
	Number, World, Start uint64                       // Start: its first step
	shares               map[uint64]map[uint64]*share // by step and rank
	Made                 map[uint64]time.Time         // by step: when its first member had made it
	Commits              map[uint64]int               // by step: number of members that have it
	ranks                map[uint64]bool
}

type share struct {
	epoch   uint64
	samples []uint64
}

// End is a worker that has made the last step with a correct state.
type End struct{ Step, Epoch, Position uint64 }

// Read reads the records in a directory. An incomplete last line is ignored.
func Read(dir string) (*History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.rec"))
	if err != nil {
		return nil, err
	}
	h := &History{}
	byNumber := map[uint64]*Generation{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		r := reader{h: h, generations: byNumber}
		s := bufio.NewScanner(bytes.NewReader(b[:bytes.LastIndexByte(b, '\n')+1]))
		s.Buffer(nil, 1<<20)
		for n := 1; s.Scan(); n++ {
			if err := r.line(s.Bytes()); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", f, n, err)
			}
		}
		if err := s.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	for _, g := range byNumber {
		h.Generations = append(h.Generations, g)
	}
	slices.SortFunc(h.Generations, func(a, b *Generation) int { return cmp.Compare(a.Number, b.Number) })
	return h, nil
}

// reader reads one worker's file.
type reader struct {
	h           *History
	generations map[uint64]*Generation
	rank        uint64 // its rank in the current generation
}

func (r *reader) line(b []byte) error {
	f := bytes.Fields(b)
	if len(f) < 3 || len(f[0]) != 1 {
		return fmt.Errorf("not a record: %q", b)
	}
	n := make([]uint64, len(f)-1)
	for i := range n {
		v, err := strconv.ParseUint(string(f[i+1]), 10, 64)
		if err != nil {
			return fmt.Errorf("not a record: %q: %w", b, err)
		}
		n[i] = v
	}
	at, n := time.Unix(0, int64(n[0])), n[1:]
	need := map[byte]int{'B': 4, 'S': 3, 'D': 2, 'C': 2, 'E': 3}[f[0][0]]
	if need == 0 || len(n) < need {
		return fmt.Errorf("not a record: %q", b)
	}
	if f[0][0] == 'E' {
		r.h.Ends = append(r.h.Ends, End{n[0], n[1], n[2]})
		return nil
	}
	if f[0][0] == 'B' {
		return r.begin(n)
	}
	g := r.generations[n[0]]
	if g == nil {
		return fmt.Errorf("generation %d has not begun: %q", n[0], b)
	}
	if n[1] <= g.Start {
		return fmt.Errorf("generation %d began at step %d: %q", n[0], g.Start, b)
	}
	switch f[0][0] {
	case 'S':
		if g.shares[n[1]] == nil {
			g.shares[n[1]] = map[uint64]*share{}
		}
		if g.shares[n[1]][r.rank] != nil {
			return fmt.Errorf("rank %d makes step %d of generation %d twice", r.rank, n[1], n[0])
		}
		g.shares[n[1]][r.rank] = &share{epoch: n[2], samples: n[3:]}
	case 'D':
		if old, ok := g.Made[n[1]]; !ok || at.Before(old) {
			g.Made[n[1]] = at
		}
	case 'C':
		g.Commits[n[1]]++
	}
	return nil
}

func (r *reader) begin(n []uint64) error {
	g := r.generations[n[0]]
	if g == nil {
		g = &Generation{
			Number: n[0], World: n[2], Start: n[3], shares: map[uint64]map[uint64]*share{}, Made: map[uint64]time.Time{},
			Commits: map[uint64]int{}, ranks: map[uint64]bool{},
		}
		r.generations[n[0]] = g
	}
	switch {
	case g.World != n[2] || g.Start != n[3]:
		return fmt.Errorf("generation %d: rank %d sees a world of %d at step %d, others %d at step %d", n[0], n[1], n[2], n[3], g.World, g.Start)
	case g.ranks[n[1]]:
		return fmt.Errorf("generation %d has two workers of rank %d", n[0], n[1])
	}
	g.ranks[n[1]], r.rank = true, n[1]
	return nil
}

// Tail counts steps while they are made, without reading everything again.
type Tail struct {
	Dir  string
	read map[string]int64
}

// Poll returns how many steps the workers have recorded since the last call; each worker records
// its own.
func (t *Tail) Poll() (int, error) {
	files, err := filepath.Glob(filepath.Join(t.Dir, "*.rec"))
	if err != nil {
		return 0, err
	}
	if t.read == nil {
		t.read = map[string]int64{}
	}
	steps := 0
	for _, f := range files {
		b, err := from(f, t.read[f])
		if err != nil {
			return 0, err
		}
		b = b[:bytes.LastIndexByte(b, '\n')+1]
		t.read[f] += int64(len(b))
		for line := range bytes.Lines(b) {
			if line[0] == 'D' {
				steps++
			}
		}
	}
	return steps, nil
}

func from(file string, offset int64) (b []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Account is the result of a check of the records.
type Account struct {
	Steps       uint64 // steps that count
	Void        uint64 // made, and lost by a fault
	Uncommitted uint64 // committed, and yet lost: no holder has survived
	Generations int
	Epochs      uint64 // finished
	Missing     uint64 // samples of finished epochs in no step
	Repeated    uint64 // samples that occur more than once in an epoch
	Finished    int    // workers that made the last step with a correct state
}

// Check finds the steps that count, and counts their samples. An error means that the records
// contradict each other, or that no worker has made the last step.
func (h *History) Check(samples uint64) (Account, error) {
	var a Account
	if len(h.Ends) == 0 {
		return a, errors.New("no worker has made the last step")
	}
	last := h.Ends[0].Step
	a.Generations, a.Finished = len(h.Generations), len(h.Ends)
	epochs := map[uint64]map[uint64]uint64{}
	var wrong error
	for g, upper := range h.counting {
		for step := g.Start + 1; step <= upper; step++ {
			a.Steps++
			if err := g.count(step, epochs); err != nil {
				wrong = errors.Join(wrong, err)
			}
		}
		for step := range g.Made {
			if step > upper {
				a.Void++
			}
		}
		for step := range g.Commits {
			if step > upper {
				a.Uncommitted++
			}
		}
	}
	if a.Steps != last {
		wrong = errors.Join(wrong, fmt.Errorf("%d steps count, want %d", a.Steps, last))
	}
	newest := uint64(0)
	for e := range epochs {
		newest = max(newest, e)
	}
	for e := range newest + 1 {
		a.samples(samples, epochs[e], e == newest)
	}
	for _, e := range h.Ends {
		if e.Step != last || e.Epoch != a.Epochs {
			wrong = errors.Join(wrong, fmt.Errorf("a worker ended at step %d with %d epochs, want %d and %d", e.Step, e.Epoch, last, a.Epochs))
		}
	}
	return a, wrong
}

// counting yields the generations, the last one first, and the last step that counts of each.
func (h *History) counting(yield func(g *Generation, upper uint64) bool) {
	if len(h.Ends) == 0 {
		return
	}
	upper := h.Ends[0].Step
	for _, g := range slices.Backward(h.Generations) {
		if !yield(g, upper) {
			return
		}
		upper = min(upper, g.Start)
	}
}

// samples adds up one epoch: only the newest may be unfinished.
func (a *Account) samples(size uint64, taken map[uint64]uint64, newest bool) {
	var total, missing uint64
	for i := range size {
		n := taken[i]
		total += n
		switch {
		case n == 0:
			missing++
		case n > 1:
			a.Repeated += n - 1
		}
	}
	if !newest || total >= size {
		a.Epochs++
		a.Missing += missing
	}
}

// count adds the samples of a step that counts to those of its epoch.
func (g *Generation) count(step uint64, epochs map[uint64]map[uint64]uint64) error {
	shares := g.shares[step]
	if uint64(len(shares)) != g.World {
		return fmt.Errorf("step %d counts in generation %d, but %d of %d ranks wrote down their part", step, g.Number, len(shares), g.World)
	}
	for rank := range g.World {
		s := shares[rank]
		if s.epoch != shares[0].epoch {
			return fmt.Errorf("step %d of generation %d: rank %d is in epoch %d, rank 0 in %d", step, g.Number, rank, s.epoch, shares[0].epoch)
		}
		taken := epochs[s.epoch]
		if taken == nil {
			taken = map[uint64]uint64{}
			epochs[s.epoch] = taken
		}
		for _, i := range s.samples {
			taken[i]++
		}
	}
	return nil
}

// Steps returns when the job made steps, in order, void ones included.
func (h *History) Steps() []time.Time {
	var all []time.Time
	for _, g := range h.Generations {
		for _, at := range g.Made {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// Durations returns the times from step to step of those in [from, to]; steps are those of Steps.
func Durations(steps []time.Time, from, to time.Time) (all []time.Duration) {
	for i := 1; i < len(steps); i++ {
		if !steps[i-1].Before(from) && !steps[i].After(to) {
			all = append(all, steps[i].Sub(steps[i-1]))
		}
	}
	return all
}

// Pause is a time without a step.
type Pause struct{ From, To time.Time }

// Length of the pause.
func (p Pause) Length() time.Duration { return p.To.Sub(p.From) }

// Longest returns the longest time without a step from a moment in [from, to] on; steps are those
// of Steps.
func Longest(steps []time.Time, from, to time.Time) Pause {
	i, _ := slices.BinarySearchFunc(steps, from, time.Time.Compare)
	var longest Pause
	for i = max(i, 1); i < len(steps) && !steps[i-1].After(to); i++ {
		p := Pause{steps[i-1], steps[i]}
		if p.From.Before(from) {
			p.From = from
		}
		if p.Length() > longest.Length() {
			longest = p
		}
	}
	return longest
}

// Lost counts the steps made in [from, to] that do not count.
func (h *History) Lost(from, to time.Time) int {
	lost := 0
	for g, upper := range h.counting {
		for step, at := range g.Made {
			if step > upper && !at.Before(from) && !at.After(to) {
				lost++
			}
		}
	}
	return lost
}
