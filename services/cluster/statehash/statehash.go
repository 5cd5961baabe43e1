// Package statehash compares the hashes that jobs have reported of their trainings' states.
package statehash

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// Hashes are the hashes that a job has reported of its training's state, by step.
type Hashes struct {
	Job ident.JobID
	of  map[uint64]events.WorkerHashed
}

// Add adds a fact about the job; of a step that was made again the last hash counts.
func (h *Hashes) Add(b events.WorkerHashed) {
	if h.of == nil {
		h.of = map[uint64]events.WorkerHashed{}
	}
	h.Job, h.of[b.Step] = b.Job, b
}

// Steps are the numbers of steps after which there is a hash, in order.
func (h *Hashes) Steps() []uint64 { return slices.Sorted(maps.Keys(h.of)) }

// Comparison is what two jobs' hashes say of their trainings.
type Comparison struct {
	Jobs   [2]ident.JobID    `json:"jobs"`
	Same   bool              `json:"same"`   // after each of Steps
	Steps  []uint64          `json:"steps"`  // after which both have a hash, up to the first difference
	Newest [2]*uint64        `json:"newest"` // hash of each; null: it has none
	First  *Difference       `json:"first_difference,omitempty"`
	Final  *tables.StateHash `json:"final,omitempty"` // the newest that both have, where they are the same
	Again  [2]*uint64        `json:"dealt_again"`     // micro-batches that lost ranks had to compute; null: not known
}

// Difference is where two trainings are not the same for the first time.
type Difference struct {
	Step    uint64    `json:"step"`    // steps that were made
	Before  *uint64   `json:"before"`  // after so many they were the same; null: at the start at the latest
	Hashes  [2]string `json:"hashes"`  // of the two jobs
	Tensors []string  `json:"tensors"` // that differ, or that one of them has
	// Dealt says, for each job, which ranks have computed the steps between the two.
	Dealt [2][]tables.DealtSteps `json:"dealt"`
}

// Compare compares the hashes of two jobs.
func Compare(a, b Hashes) Comparison {
	c := Comparison{Jobs: [2]ident.JobID{a.Job, b.Job}, Steps: []uint64{}, Newest: [2]*uint64{a.newest(), b.newest()}, Again: [2]*uint64{a.again(), b.again()}}
	var before *uint64
	for _, step := range a.Steps() {
		mine := a.of[step]
		other, both := b.of[step]
		if !both {
			continue
		}
		c.Steps = append(c.Steps, step)
		if mine.Hash != other.Hash {
			c.First = &Difference{
				Step: step, Before: before, Hashes: [2]string{mine.Hash, other.Hash}, Tensors: differing(mine.Tensors, other.Tensors),
				Dealt: [2][]tables.DealtSteps{a.dealt(before, step), b.dealt(before, step)},
			}
			return c
		}
		before, c.Final = &step, &mine.StateHash
	}
	c.Same = len(c.Steps) > 0
	return c
}

func (h *Hashes) newest() *uint64 {
	steps := h.Steps()
	if len(steps) == 0 {
		return nil
	}
	return &steps[len(steps)-1]
}

// again adds up how many micro-batches were dealt once more; nil = it is not known of all steps.
func (h *Hashes) again() *uint64 {
	all := h.dealt(nil, math.MaxUint64)
	if len(all) == 0 {
		return nil
	}
	n, next := uint64(0), all[0].First
	for _, d := range all {
		if d.Again == nil || d.First > next {
			return nil
		}
		n, next = n+*d.Again, max(next, d.Last+1)
	}
	return &n
}

// dealt returns who has computed the steps from one number of steps to another.
func (h *Hashes) dealt(from *uint64, to uint64) []tables.DealtSteps {
	out := []tables.DealtSteps{}
	for _, step := range h.Steps() {
		for _, d := range h.of[step].Dealt {
			if d.First < to && (from == nil || d.Last >= *from) {
				out = append(out, d)
			}
		}
	}
	return out
}

// differing returns the names of the tensors that are not the same, sorted.
func differing(a, b map[string]string) []string {
	out := []string{}
	for name, hash := range a {
		if b[name] != hash {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// DealtText formats who has computed which micro-batches: steps 40 to 59, g1: r0 0-3, r1 4-7.
func DealtText(d tables.DealtSteps) string {
	text := fmt.Sprintf("steps %d to %d, %s: ", d.First, d.Last, d.Generation)
	if d.First == d.Last {
		text = fmt.Sprintf("step %d, %s: ", d.First, d.Generation)
	}
	by := map[int][]string{}
	for m := 0; m < len(d.Ranks); {
		end := m
		for end+1 < len(d.Ranks) && d.Ranks[end+1] == d.Ranks[m] {
			end++
		}
		part := fmt.Sprint(m)
		if end > m {
			part = fmt.Sprintf("%d-%d", m, end)
		}
		by[d.Ranks[m]] = append(by[d.Ranks[m]], part)
		m = end + 1
	}
	var ranks []string
	for _, r := range slices.Sorted(maps.Keys(by)) {
		ranks = append(ranks, fmt.Sprintf("r%d %s", r, strings.Join(by[r], " ")))
	}
	text += strings.Join(ranks, ", ")
	if d.Again != nil && *d.Again > 0 {
		text += fmt.Sprintf("; %s dealt again", english.Plural(int(*d.Again), "micro-batch"))
	}
	return text
}
