package reproducible

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"slices"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// maxPasses are enough for any gradients that are the same each time: one that finds magnitudes,
// one that finds out that they have grown too much for that, and one with the shifts that fit.
const maxPasses = 3

// Accumulator adds up the gradients of a step's micro-batches over all ranks, so that the result
// has the same bits whatever number of ranks there is, and whichever of them computes a
// micro-batch. It belongs to the goroutine of the training function.
type Accumulator struct {
	state      *elastic.State
	sizes      []int
	elements   int
	magnitudes []float32 // of the parts, in the last step that had one; part of the state

	// Of the step that was begun last. They outlive the generation.
	at       point
	dealing  dealing
	total    []int64   // of what this rank has computed in this pass
	now      []float32 // the magnitudes of that
	indices  []int     // the samples of that
	found    []float32 // magnitudes, in a pass whose totals were no use; nil = magnitudes count
	proof    uint64    // a hash of the gradient of micro-batch 0 in a pass that only found magnitudes
	proves   bool      // it is known
	complete bool      // the step is, on this rank

	session *elastic.Session // in which the dealing was agreed on
	shares  shares           // of the ranks of this session
	clock   func() float64   // seconds since any moment
	took    float64          // seconds for one micro-batch of this pass, as far as this rank has computed it
	seed    maphash.Seed
	sums    []int64

	witness    int // micro-batches of a step that two ranks compute
	inspection     // of this pass
}

// point is where a step begins. Totals count if the state has returned to it: it is the same there,
// to the bit, whatever has happened before.
type point struct {
	step   uint64
	cursor samples.Cursor
	total  int // samples of the batch
	size   int // of a micro-batch
}

// New returns an accumulator for gradients that are one slice of parts of the given sizes, one
// after the other, and registers what must be kept with the state, under a name. Each part is
// scaled alone: make one of what has magnitudes of its own, like a layer's weights, or the loss.
func New(state *elastic.State, name string, sizes ...int) *Accumulator {
	a := &Accumulator{state: state, sizes: slices.Clone(sizes), magnitudes: make([]float32, len(sizes)), seed: maphash.MakeSeed(), clock: clock()}
	for i, n := range sizes {
		a.elements += n
		a.magnitudes[i] = absent
	}
	a.total, a.now = make([]int64, a.elements), make([]float32, len(sizes))
	elastic.Tensor(state, name, a.magnitudes)
	return a
}

// Average is the computation and the reduction of a step: it calls f for each of this rank's
// micro-batches of b, a batch of Session.NextMicro that is the same on all ranks, and leaves in
// grads the mean over all samples of the batch, each with the same weight. Then it does what
// Session.Consume does. It takes the place of samples.Mean and Session.AverageGradients; as there,
// other values that are means over the samples can be appended to grads, as a part of their own.
//
// f computes the mean over the samples of one micro-batch into mean, which is zero when f is called
// (it is the memory of grads). It must give the same bits on every rank: it depends on the state,
// the number m of the micro-batch, from 0, and its samples alone; random numbers are seeded by the
// step and m. Which micro-batches a rank gets is not b.Micro after a loss.
//
// A rank whose calls of f take longer than the others' gets fewer micro-batches in later steps.
//
// When an error has ended a generation, the first Average of the next one goes on with what the
// ranks have computed, if the state has returned to the start of the step. So f is called again for
// micro-batches that nobody has who is left. It is also called again, on all ranks, for all
// micro-batches of a step whose gradients have grown or shrunk too much since the step before, and
// for micro-batch 0 in the first step. If its result differs then, that is an error.
//
// A part with an element that is not finite, in any micro-batch, is NaN on all ranks.
func (a *Accumulator) Average(ctx context.Context, s *elastic.Session, b samples.Batch, grads []float32, f func(m int, indices []int, mean []float32) error) error {
	switch count := b.MicroBatches(); {
	case len(grads) != a.elements || a.elements == 0:
		return fmt.Errorf("reproducible: the gradients have %d elements, the parts %d", len(grads), a.elements)
	case b.MicroSize() == 0:
		return errors.New("reproducible: the batch is not of Session.NextMicro")
	case count == 0:
		return errors.New("reproducible: the batch has no samples")
	case a.witness < 0:
		return fmt.Errorf("reproducible: %d micro-batches of a step are to have a witness, want 0 or more", a.witness)
	case count > maxSummands:
		return fmt.Errorf("reproducible: %d micro-batches in a step, at most %d", count, maxSummands)
	}
	if err := a.open(ctx, s, b); err != nil {
		return fmt.Errorf("reproducible: %w", err)
	}
	for {
		shifts := a.shifts(b)
		a.inspect(s, b, shifts)
		if err := a.compute(ctx, s, b, shifts, grads, f); err != nil {
			return err
		}
		if err := a.attest(ctx, s, b, grads, f); err != nil {
			return err
		}
		greatest, fit, err := a.measure(ctx, s, b, shifts)
		if err != nil {
			return err
		}
		if !fit {
			continue
		}
		if err := a.settle(ctx, s, b, grads, f); err != nil {
			return err
		}
		if err := a.sum(ctx, s, b, shifts, greatest, grads); err != nil {
			return err
		}
		b.Indices = a.indices
		if err := s.Consume(ctx, b); err != nil {
			return err
		}
		a.complete = true
		copy(a.magnitudes, a.learn(greatest))
		return nil
	}
}

// open begins a step, or goes on with it if this rank has computed a part of it before others were
// lost.
func (a *Accumulator) open(ctx context.Context, s *elastic.Session, b samples.Batch) error {
	at := point{step: s.Step(), cursor: a.state.Cursor(), total: b.Total, size: b.MicroSize()}
	if at != a.at || a.complete && a.session == s {
		a.at, a.found, a.proves = at, nil, false
		a.begin(0, b)
	}
	a.complete = false
	if a.session == s {
		return nil
	}
	parts := fnv.New64a()
	fmt.Fprint(parts, a.sizes)
	what := fmt.Sprintf("step %d, %d samples of epoch %d from %d on in micro-batches of %d, parts %x", at.step, at.total, at.cursor.Epoch, at.cursor.Position, at.size, parts.Sum(nil))
	row, err := json.Marshal(a.dealing.say(what, a.found))
	if err != nil {
		return err
	}
	all, err := s.Comm().AllgatherBlobs(ctx, row)
	if err != nil {
		return err
	}
	rows := make([]said, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &rows[r]); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	x, err := agree(rows, s.Rank)
	if err != nil {
		return err
	}
	a.found = x.found
	if !x.keeps {
		a.clear()
	}
	a.dealing.adopt(x, a.count(b))
	a.session, a.shares = s, shares{}
	return nil
}

// begin begins a pass over the step's micro-batches.
func (a *Accumulator) begin(pass int, b samples.Batch) {
	a.clear()
	a.dealing.begin(pass, a.count(b))
}

// clear forgets what this rank has computed.
func (a *Accumulator) clear() {
	clear(a.total)
	a.indices = nil
	for i := range a.now {
		a.now[i] = absent
	}
}

// known returns the magnitudes by which gradients are scaled; absent = there was no step yet.
func (a *Accumulator) known() []float32 {
	if a.found != nil {
		return a.found
	}
	return a.magnitudes
}

// count returns how many micro-batches of the step a pass takes: the first one, if it only finds
// magnitudes.
func (a *Accumulator) count(b samples.Batch) int {
	if a.known()[0] == absent {
		return 1
	}
	return b.MicroBatches()
}

// shifts returns the shift of each part; nil = none is known, and the pass only finds magnitudes.
func (a *Accumulator) shifts(b samples.Batch) []int {
	known := a.known()
	if known[0] == absent {
		return nil
	}
	most := slices.Max(known)
	shifts := make([]int, len(known))
	for i, m := range known {
		if m <= 0 {
			m = most
		}
		shifts[i] = shiftFor(m, b.MicroBatches())
	}
	return shifts
}

// compute has f compute this rank's micro-batches, and adds them up.
func (a *Accumulator) compute(ctx context.Context, s *elastic.Session, b samples.Batch, shifts []int, grads []float32, f func(int, []int, []float32) error) error {
	began, computed := a.clock(), 0
	a.took = 0
	for _, m := range a.dealing.share(s.Rank, a.shares.of(a.dealing.size(), s.World)) {
		if a.dealing.done[m] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		indices := b.MicroBatch(m)
		clear(grads)
		if err := f(m, indices, grads); err != nil {
			return err
		}
		if err := a.prove(m, shifts == nil, grads); err != nil {
			return err
		}
		a.computed(m, grads)
		if len(indices) < b.MicroSize() {
			scale(grads, float64(len(indices))/float64(b.MicroSize()))
		}
		a.added(m, a.add(shifts, grads))
		a.dealing.done[m], a.indices = true, append(a.indices, indices...)
		computed++
	}
	if computed > 0 {
		a.took = (a.clock() - began) / float64(computed)
	}
	return nil
}

// prove compares the two gradients of micro-batch 0 that the rank has that computes it in a pass
// that only finds magnitudes and in the next.
func (a *Accumulator) prove(m int, finds bool, grads []float32) error {
	if m != 0 || !finds && !a.proves {
		return nil
	}
	hash := maphash.Bytes(a.seed, bytesOf(grads))
	if !finds && hash != a.proof {
		return fmt.Errorf("reproducible: micro-batch 0 of step %d, computed twice, has two gradients: they must depend on the state, the micro-batch's number and its samples alone", a.at.step)
	}
	a.proof, a.proves = hash, true
	return nil
}

// add adds the gradient of a micro-batch, and returns its magnitude.
func (a *Accumulator) add(shifts []int, grads []float32) (greatest float32) {
	total := a.total
	for i, n := range a.sizes {
		var most float32
		if shifts == nil {
			most = magnitude(grads[:n])
		} else {
			most = add(total[:n], grads[:n], shifts[i])
		}
		a.now[i], greatest = max(a.now[i], most), max(greatest, most)
		grads, total = grads[n:], total[n:]
	}
	return greatest
}

// measure finds the greatest magnitude of each part, infinite if an element is not finite, and how
// fast the ranks are. If the magnitudes do not fit the shifts, on any rank, it begins another pass.
func (a *Accumulator) measure(ctx context.Context, s *elastic.Session, b samples.Batch, shifts []int) (greatest []float32, fit bool, err error) {
	row := append(slices.Clone(a.now), make([]float32, s.World)...)
	row[len(a.now)+s.Rank] = float32(a.took)
	if err := collective.Allreduce(ctx, s.Comm(), row, collective.Max); err != nil {
		return nil, false, err
	}
	greatest, took := row[:len(a.now)], row[len(a.now):]
	fit = shifts != nil
	for i, m := range greatest {
		if fit && !infinite(m) {
			fit = fits(m, shifts[i], b.MicroBatches())
		}
	}
	switch {
	case fit:
		a.shares.measured(b.MicroBatches(), took)
		return greatest, true, nil
	case a.dealing.pass+1 == maxPasses:
		return nil, false, fmt.Errorf("reproducible: the gradients of step %d differ each time that they are computed", a.at.step)
	}
	a.found = a.learn(greatest)
	a.begin(a.dealing.pass+1, b)
	return nil, false, nil
}

// learn returns the magnitudes that the next pass or step goes by: those of earlier ones where
// these say nothing.
func (a *Accumulator) learn(greatest []float32) []float32 {
	known := slices.Clone(greatest)
	for i, m := range known {
		if m <= 0 || infinite(m) {
			known[i] = max(a.known()[i], 0)
		}
	}
	return known
}
