package reproducible

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// Witness has n of the micro-batches of each step computed by a second rank, too, so that one that
// computes wrongly is found: where the two results differ, and where a gradient is not finite, all
// ranks compute that micro-batch, before the gradients are used. One that has another result than
// most gets ErrCorrupt and must leave; the others go on with the step, without its part. Of two
// ranks the one is found that does not repeat its result; if both do, both get an error.
//
// It is called before the first Average, with the same n on all ranks. It costs as many calls of f
// in each step, on ranks that take turns.
func (a *Accumulator) Witness(n int) { a.witness = n }

// inspection is what a rank knows in a pass of micro-batches that two ranks compute.
type inspection struct {
	duties  []duty
	results map[int]uint64 // hashes of the gradients that this rank has computed of these
	broken  int            // the first of its micro-batches whose gradient is not finite, from 1; 0 = none
}

// dispute is a micro-batch whose result is in doubt, with the results of those who have it.
type dispute struct {
	m     int
	first map[int]uint64
}

// notFinite stands for a result that no rank can have.
const notFinite = 0

// inspect begins with what a pass has. Where a member was lost in the step nobody knows whose the
// micro-batches are, and none is computed twice.
func (a *Accumulator) inspect(s *elastic.Session, b samples.Batch, shifts []int) {
	a.inspection = inspection{results: map[int]uint64{}}
	if shifts != nil && s.World > 1 && a.dealing.size() == b.MicroBatches() {
		a.duties = duties(a.at.step, a.shares.of(a.dealing.size(), s.World), a.witness)
	}
}

// computed takes what this rank has computed of its own: the gradient of a micro-batch, before it
// is scaled.
func (i *inspection) computed(m int, grads []float32) {
	if slices.ContainsFunc(i.duties, func(d duty) bool { return d.m == m }) {
		i.results[m] = resultOf(grads)
	}
}

// added takes the largest magnitude of that.
func (i *inspection) added(m int, most float32) {
	if i.broken == 0 && infinite(most) {
		i.broken = m + 1
	}
}

// attest has f compute what this rank computes for others to be compared.
func (a *Accumulator) attest(ctx context.Context, s *elastic.Session, b samples.Batch, grads []float32, f func(int, []int, []float32) error) error {
	for _, d := range a.duties {
		if d.witness != s.Rank {
			continue
		}
		if err := a.again(ctx, b, d.m, grads, f); err != nil {
			return err
		}
	}
	return nil
}

// again has f compute a micro-batch that is not to be added.
func (a *Accumulator) again(ctx context.Context, b samples.Batch, m int, grads []float32, f func(int, []int, []float32) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	clear(grads)
	if err := f(m, b.MicroBatch(m), grads); err != nil {
		return err
	}
	a.results[m] = resultOf(grads)
	return nil
}

func resultOf(grads []float32) uint64 { return xxh3.Hash(bytesOf(grads)) }

// settle compares the results of two, and has all ranks compute what is in doubt.
func (a *Accumulator) settle(ctx context.Context, s *elastic.Session, b samples.Batch, grads []float32, f func(int, []int, []float32) error) error {
	if a.witness == 0 || s.World == 1 {
		return nil
	}
	row := make([]uint64, len(a.duties)+1)
	for i, d := range a.duties {
		row[i] = a.results[d.m]
	}
	row[len(a.duties)] = uint64(a.broken)
	rows, err := gather(ctx, s, row)
	if err != nil {
		return err
	}
	for _, d := range a.disputes(rows) {
		if err := a.again(ctx, b, d.m, grads, f); err != nil {
			return err
		}
		finite := uint64(1)
		if infinite(magnitude(grads)) {
			finite = 0
		}
		rows, err := gather(ctx, s, []uint64{a.results[d.m], finite})
		if err != nil {
			return err
		}
		what := fmt.Sprintf("micro-batch %d of step %d", d.m, a.at.step)
		v, ok := d.decide(rows)
		if !ok {
			return undecided(ctx, s, what)
		}
		// Those who are right get no error: that of the others is the loss of a member.
		others := s.World - len(v.always) - len(v.once)
		switch {
		case slices.Contains(v.always, s.Rank):
			return corrupt("rank %d has another result for %s than %d others", s.Rank, what, others)
		case slices.Contains(v.once, s.Rank):
			return corrupt("rank %d has another result for %s than %d others, which it did not repeat", s.Rank, what, others)
		}
	}
	return nil
}

// disputes returns what all ranks must compute, by what each has said.
func (i *inspection) disputes(rows [][]uint64) (found []dispute) {
	for n, d := range i.duties {
		if one, other := rows[d.owner][n], rows[d.witness][n]; one != other {
			found = append(found, dispute{d.m, map[int]uint64{d.owner: one, d.witness: other}})
		}
	}
	for rank, row := range rows {
		m := int(row[len(i.duties)]) - 1
		if m >= 0 && !slices.ContainsFunc(found, func(d dispute) bool { return d.m == m }) {
			found = append(found, dispute{m, map[int]uint64{rank: notFinite}})
		}
	}
	return found
}

// decide decides by the results of all ranks, each with whether it is finite.
func (d dispute) decide(rows [][]uint64) (v verdict, ok bool) {
	second := make([]uint64, len(rows))
	for r, row := range rows {
		second[r] = row[0]
	}
	if v, ok = decide(d.first, second); !ok {
		return v, false
	}
	if finite := rows[slices.Index(second, v.right)][1]; finite == 0 { // wherever it is computed
		v.once = slices.DeleteFunc(v.once, func(r int) bool { return d.first[r] == notFinite })
	}
	return v, true
}

// gather returns what each rank says, as many numbers of each.
func gather(ctx context.Context, s *elastic.Session, row []uint64) ([][]uint64, error) {
	b, err := binary.Append(nil, binary.LittleEndian, row)
	if err != nil {
		return nil, err
	}
	all, err := s.Comm().AllgatherBlobs(ctx, b)
	if err != nil {
		return nil, err
	}
	rows := make([][]uint64, len(all))
	for r, b := range all {
		rows[r] = make([]uint64, len(row))
		if n, err := binary.Decode(b, binary.LittleEndian, rows[r]); err != nil || n != len(b) {
			return nil, fmt.Errorf("reproducible: rank %d says %d bytes, want %d: all ranks must have as many witnesses", r, len(b), 8*len(row))
		}
	}
	return rows, nil
}
