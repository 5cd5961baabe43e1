package elastic

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/race"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

var histories = flag.Int("histories", map[bool]int{false: 10_000, true: 1000}[race.Enabled], "random histories of crash and resize for each sampler")

// account keeps the books of a history. It knows nothing of how samples are ordered or dealt, only
// which were trained on, and the rules: a commit makes what was done permanent, a crash makes void
// what was done since.
type account struct {
	samples   int
	permanent map[uint64][]int // by epoch: how often each index was trained on
	since     map[uint64][]int
}

func newAccount(count int) *account {
	return &account{samples: count, permanent: map[uint64][]int{}, since: map[uint64][]int{}}
}

func (a *account) trained(epoch uint64, indices []int) error {
	for _, i := range indices {
		if i < 0 || i >= a.samples {
			return fmt.Errorf("index %d of %d", i, a.samples)
		}
		if a.since[epoch] == nil {
			a.since[epoch] = make([]int, a.samples)
		}
		a.since[epoch][i]++
	}
	return nil
}

func (a *account) crash() { a.since = map[uint64][]int{} }

func (a *account) commit() {
	for epoch, counts := range a.since {
		if a.permanent[epoch] == nil {
			a.permanent[epoch] = make([]int, a.samples)
		}
		for i, n := range counts {
			a.permanent[epoch][i] += n
		}
	}
	a.since = map[uint64][]int{}
}

// check wants that epochs before the given one have every index once, and that no later one has any
// twice.
func (a *account) check(epoch uint64) error {
	for e := range epoch {
		for i := range a.samples {
			if a.permanent[e] == nil || a.permanent[e][i] != 1 {
				return fmt.Errorf("epoch %d has sample %d %d times", e, i, a.permanent[e][i])
			}
		}
	}
	for e, counts := range a.permanent {
		if i := slices.IndexFunc(counts, func(n int) bool { return n > 1 }); i >= 0 {
			return fmt.Errorf("epoch %d, which may not be over, has sample %d %d times", e, i, counts[i])
		}
	}
	return nil
}

// troupe is the members of a job without their communicator: what the ranks would reduce is added
// up by the test.
type troupe struct {
	rng        *rand.Rand
	fresh      func() *State
	members    []*Session
	generation uint64
}

// regroup forms the next generation: some of the members and some newcomers, all with the newest
// commit.
func (t *troupe) regroup(world int) error {
	t.generation++
	stay := min(world, t.rng.IntN(len(t.members)+1))
	if len(t.members) > 0 {
		stay = max(stay, 1)
	}
	t.rng.Shuffle(len(t.members), func(i, j int) { t.members[i], t.members[j] = t.members[j], t.members[i] })
	next := t.members[:min(stay, len(t.members))]
	var newest *statesync.Snapshot
	for _, m := range next {
		if h := m.state.replica.Newest(); newest == nil || h.Step() > newest.Step() {
			newest = h
		}
	}
	for len(next) < world {
		s := t.fresh()
		if err := s.begin(); err != nil {
			return err
		}
		next = append(next, &Session{updates: updates.New(), state: s})
	}
	for rank, m := range next {
		if newest != nil && m.state.replica.Newest().Step() < newest.Step() { // as a sync brings it
			m.state.replica.Commit(bytes.Clone(newest.Meta()), t.generation, newest.Step())
		}
		if err := m.state.Restore(); err != nil {
			return err
		}
		m.Membership = Membership{Generation: t.generation, Rank: rank, World: world}
		if e := m.state.elastic; e != nil {
			e.DealTo(rank, world)
		}
	}
	t.members = next
	return nil
}

// step has all members train on their batches.
func (t *troupe) step(batches []samples.Batch) {
	var sum stepTotals
	for _, b := range batches {
		sum.count += uint64(len(b.Indices))
		for _, i := range b.Indices {
			sum.hashes += workerprotocol.SampleHash(uint64(i))
		}
		if b.Elastic() {
			sum.left += b.Left()
		}
	}
	for rank, m := range t.members {
		m.advance(batches[rank], sum)
	}
}

// commit has all members agree, and the first of them save.
func (t *troupe) commit(savers int) error {
	var said [][]byte
	for _, m := range t.members {
		if e := m.state.elastic; e != nil {
			b, err := e.Progress()
			if err != nil {
				return err
			}
			said = append(said, b)
		}
	}
	for i, m := range t.members {
		if i == savers {
			break
		}
		if e := m.state.elastic; e != nil {
			sums, err := e.Merge(said)
			if err != nil {
				return err
			}
			for _, x := range sums {
				m.state.ledger.Add(x)
			}
			m.state.ledger.MarkDone()
		}
		if err := m.state.save(t.generation, true); err != nil {
			return err
		}
	}
	return nil
}

// everybody saves.
const everybody = 1 << 30

// history is one random life of a job. deal returns what all members train on in the next step, and
// is told to record it.
func history(seed uint64, fresh func(rng *rand.Rand, count int) *State, deal func(rng *rand.Rand, members []*Session) ([]samples.Batch, error)) error {
	rng := rand.New(rand.NewPCG(seed, 99))
	count := 1 + rng.IntN(120)
	if rng.IntN(8) == 0 {
		count = 1 + rng.IntN(5)
	}
	books := newAccount(count)
	t := &troupe{rng: rng, fresh: func() *State { return fresh(rand.New(rand.NewPCG(seed, 7)), count) }}
	if err := t.regroup(1 + rng.IntN(6)); err != nil {
		return err
	}
	if err := t.commit(everybody); err != nil { // the start
		return err
	}
	epochs := uint64(1 + rng.IntN(3))
	for steps := 0; t.members[0].Epoch() < epochs; steps++ {
		if steps > 5000 {
			return fmt.Errorf("epoch %d does not end", t.members[0].Epoch())
		}
		batches, err := deal(rng, t.members)
		if err != nil {
			return err
		}
		for _, b := range batches {
			if err := books.trained(b.Epoch, b.Indices); err != nil {
				return err
			}
		}
		world := 1 + rng.IntN(8)
		switch rng.IntN(12) {
		case 0: // a crash
			books.crash()
			if err := t.regroup(world); err != nil {
				return err
			}
		case 1: // a resize, at a commit
			books.commit()
			if err := t.commit(everybody); err != nil {
				return err
			}
			if err := t.regroup(world); err != nil {
				return err
			}
		case 2, 3, 4:
			books.commit()
			if err := t.commit(everybody); err != nil {
				return err
			}
		case 5: // a crash within a commit: it counts if somebody is left who has saved
			step := t.members[0].Step()
			if err := t.commit(rng.IntN(len(t.members) + 1)); err != nil {
				return err
			}
			if err := t.regroup(world); err != nil {
				return err
			}
			if t.members[0].Step() == step {
				books.commit()
			} else {
				books.crash()
			}
		}
	}
	books.commit()
	if err := t.commit(everybody); err != nil {
		return err
	}
	if err := books.check(epochs); err != nil {
		return err
	}
	for _, m := range t.members {
		l := m.state.Ledger()
		if err := samples.CheckLedger(l); err != nil {
			return err
		}
		closed := 0
		for _, e := range l.Epochs {
			if e.Done && e.Epoch < epochs {
				closed++
			}
		}
		if closed != int(epochs) {
			return fmt.Errorf("the ledger closes %d epochs of %d: %+v", closed, epochs, l)
		}
	}
	return nil
}

func runHistories(t *testing.T, fresh func(rng *rand.Rand, count int) *State, deal func(rng *rand.Rand, members []*Session) ([]samples.Batch, error)) {
	t.Helper()
	const parts = 4
	for part := range parts {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < *histories; seed += parts {
				if err := history(uint64(seed), fresh, deal); err != nil {
					t.Fatalf("history %d: %v", seed, err)
				}
			}
		})
	}
}

// TestHistoriesOfASampler: whatever crashes and resizes, batches and micro-batches, each finished
// epoch holds each sample once.
func TestHistoriesOfASampler(t *testing.T) {
	runHistories(t,
		func(rng *rand.Rand, count int) *State {
			return NewState(samples.NewSampler(uint64(count), rng.Uint64()))
		},
		dealBatches)
}

func dealBatches(rng *rand.Rand, members []*Session) (batches []samples.Batch, err error) {
	global, micro, whole := 1+rng.IntN(40), 1+rng.IntN(9), rng.IntN(2) == 0
	for _, m := range members {
		if whole {
			batches = append(batches, m.NextMicro(global, micro))
		} else {
			batches = append(batches, m.Next(global))
		}
	}
	var t troupe
	t.members = members
	t.step(batches)
	return batches, nil
}

// TestHistoriesOfAnElasticSampler: likewise, with batches of another size on each rank, recorded in
// any of the three ways.
func TestHistoriesOfAnElasticSampler(t *testing.T) {
	runHistories(t,
		func(rng *rand.Rand, count int) *State {
			s := NewState(nil)
			s.SetElasticSampler(samples.NewElasticSampler(uint64(count), rng.Uint64()))
			return s
		},
		dealShares)
}

func dealShares(rng *rand.Rand, members []*Session) (batches []samples.Batch, err error) {
	for _, m := range members {
		batches = append(batches, m.state.elastic.Next(1+rng.IntN(12)))
	}
	var t troupe
	t.members = members
	t.step(batches)
	for rank, m := range members {
		e, b := m.state.elastic, batches[rank]
		from := e.Len() - int(b.Left()) - len(b.Indices)
		switch size := len(b.Indices); {
		case rng.IntN(3) == 0:
			err = e.Record(b)
		case size > 0 && from%size == 0 && rng.IntN(2) == 0:
			err = e.RecordBatch(from/size, size)
		default:
			indices := slices.Clone(b.Indices)
			rng.Shuffle(size, func(i, j int) { indices[i], indices[j] = indices[j], indices[i] })
			err = e.RecordIndices(indices)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, m := range members {
		if e := m.state.elastic; e.Finished() {
			e.SetEpoch(e.Epoch() + 1)
		}
	}
	return batches, nil
}

// TestTheBooksRefute: samplers that do what Horovod's did are found out.
func TestTheBooksRefute(t *testing.T) {
	for name, deal := range map[string]func(rng *rand.Rand, members []*Session) ([]samples.Batch, error){
		"padding": func(rng *rand.Rand, members []*Session) ([]samples.Batch, error) {
			batches, err := dealBatches(rng, members)
			for i := range batches { // all shares as long as the longest
				if len(batches[i].Indices) < len(batches[0].Indices) {
					batches[i].Indices = append(slices.Clone(batches[i].Indices), batches[0].Indices[0])
				}
			}
			return batches, err
		},
		"the share of a larger world": func(rng *rand.Rand, members []*Session) ([]samples.Batch, error) {
			batches, err := dealBatches(rng, members)
			if n := len(batches); n > 1 && rng.IntN(4) == 0 {
				batches[n-1].Indices = nil
			}
			return batches, err
		},
	} {
		found := 0
		for seed := range uint64(50) {
			if history(seed, func(rng *rand.Rand, count int) *State {
				return NewState(samples.NewSampler(uint64(count), rng.Uint64()))
			}, deal) != nil {
				found++
			}
		}
		if found < 10 {
			t.Errorf("%s: found out in %d of 50 histories", name, found)
		}
	}
}
