package record

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

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
	upper := last
	for _, g := range slices.Backward(h.Generations) {
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
		upper = min(upper, g.Start)
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
	if len(h.Ends) == 0 {
		return 0
	}
	lost, upper := 0, h.Ends[0].Step
	for _, g := range slices.Backward(h.Generations) {
		for step, at := range g.Made {
			if step > upper && !at.Before(from) && !at.After(to) {
				lost++
			}
		}
		upper = min(upper, g.Start)
	}
	return lost
}
