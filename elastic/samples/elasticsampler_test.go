package samples

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// samplers is the samplers of a world, without a state.
type samplers []*ElasticSampler

func newSamplers(count uint64, world int) (c samplers) {
	for rank := range world {
		s := NewElasticSampler(count, 3)
		s.DealTo(rank, world)
		c = append(c, s)
	}
	return c
}

// commit puts together what all have recorded.
func (c samplers) commit(t *testing.T) {
	t.Helper()
	var all [][]byte
	for _, s := range c {
		b, err := s.Progress()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, s := range c {
		if _, err := s.Merge(all); err != nil {
			t.Fatal(err)
		}
	}
}

// resize goes on in another world from what was committed.
func (c samplers) resize(t *testing.T, world int) samplers {
	t.Helper()
	b, err := json.Marshal(c[0].StateDict())
	if err != nil {
		t.Fatal(err)
	}
	next := newSamplers(c[0].Samples(), world)
	for _, s := range next {
		var from ElasticState
		if err := json.Unmarshal(b, &from); err != nil {
			t.Fatal(err)
		}
		if err := s.LoadStateDict(from); err != nil {
			t.Fatal(err)
		}
	}
	return next
}

// shares are what all ranks would read, sorted.
func (c samplers) shares() (all []int) {
	for _, s := range c {
		all = slices.AppendSeq(all, s.Indices())
	}
	slices.Sort(all)
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The traps of Horovod's sampler are numbered: S1 to S11.

// S1: its shares are filled up by repeating  S3: with few left and many ranks that fails.
func TestSharesArePaddedWithNothing(t *testing.T) {
	for _, c := range []struct{ samples, world int }{{10, 3}, {2, 5}, {1, 4}, {0, 2}, {7, 7}} {
		samplers := newSamplers(uint64(c.samples), c.world)
		if got := samplers.shares(); len(got) != c.samples || !slices.Equal(got, upTo(c.samples)) {
			t.Errorf("%d samples, %d ranks: %v", c.samples, c.world, got)
		}
		for rank, s := range samplers {
			if n := len(slices.Collect(s.Indices())); n != s.Len() || n < c.samples/c.world || n > c.samples/c.world+1 {
				t.Errorf("%d samples, %d ranks: rank %d has %d, Len is %d", c.samples, c.world, rank, n, s.Len())
			}
		}
	}
}

// S2: after a removal the survivors go on with the shares of the old world.
func TestWhatALostRankHadIsDealtToTheOthers(t *testing.T) {
	c := newSamplers(20, 3)
	var seen []int
	for _, s := range c {
		for i := range 2 {
			seen = append(seen, s.Batch(i, 2).Indices...)
			must(t, s.RecordBatch(i, 2))
		}
	}
	c.commit(t)
	seen = append(seen, c.resize(t, 2).shares()...)
	if slices.Sort(seen); !slices.Equal(seen, upTo(20)) {
		t.Errorf("seen %v", seen)
	}
}

// S4: a short last batch counts as a full one.
func TestAShortLastBatchIsWhatItIs(t *testing.T) {
	c := newSamplers(10, 2)
	for _, s := range c {
		must(t, s.RecordBatch(0, 4))
		if b := s.Batch(1, 4); len(b.Indices) != 1 || b.Left() != 0 {
			t.Errorf("the last batch is %+v", b)
		}
		must(t, s.RecordBatch(1, 4))
		if b := s.Batch(2, 4); len(b.Indices) != 0 {
			t.Errorf("there is one more: %+v", b)
		}
	}
	c.commit(t)
	if n := c[0].StateDict().Count(); n != 10 {
		t.Errorf("%d samples of 10 are processed", n)
	}
}

// S5: what is recorded is on the honour system: twice, of others, or of another batch size on each
// rank.
func TestRecordsAreChecked(t *testing.T) {
	c := newSamplers(40, 2)
	must(t, c[0].RecordBatch(0, 8))
	for what, err := range map[string]error{
		"a batch twice":            c[0].RecordBatch(0, 8),
		"a part of it":             c[0].RecordBatch(1, 5),
		"an index twice":           c[0].RecordIndices(c[0].Batch(0, 8).Indices[:1]),
		"an index twice at once":   c[0].RecordIndices([]int{c[0].Batch(1, 8).Indices[0], c[0].Batch(1, 8).Indices[0]}),
		"another rank's":           c[0].RecordIndices(c[1].Batch(0, 1).Indices),
		"an index out of range":    c[0].RecordIndices([]int{40}),
		"a batch before the first": c[0].RecordBatch(-1, 8),
		"a Sampler's batch":        c[0].Record(NewSampler(40, 3).Next(4, 0, 1)),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if got := c[0].recorded.Len(); got != 8 {
		t.Errorf("%d samples are recorded after all that, want 8", got)
	}
	must(t, c[1].RecordBatch(0, 3)) // a rank with batches of its own
	must(t, c[1].RecordIndices(c[1].Batch(2, 5).Indices))
	c.commit(t)
	if n := c[1].StateDict().Count(); n != 16 {
		t.Errorf("%d samples are processed, want 16", n)
	}
}

// S6 and S9: what was trained on or fetched and not committed is dealt again after a crash, and
// nothing else.
func TestACrashGoesBackToTheCommit(t *testing.T) {
	c := newSamplers(30, 3)
	for _, s := range c {
		must(t, s.RecordBatch(0, 3))
	}
	c.commit(t)
	at := c[0].StateDict()
	var void []int
	for _, s := range c {
		// Fetched, and recorded in part.
		void = append(void, append(s.Batch(1, 3).Indices, s.Batch(2, 2).Indices...)...)
		must(t, s.RecordBatch(1, 3))
	}
	for _, s := range c {
		must(t, s.LoadStateDict(at))
	}
	got := c.shares()
	for _, i := range void {
		if !slices.Contains(got, i) {
			t.Errorf("sample %d was void and is not dealt again", i)
		}
	}
	if len(got) != 21 {
		t.Errorf("%d samples are dealt again, want 21", len(got))
	}
}

// TestSetEpochKeepsWhatIsUnderWay: Horovod's starts a resumed epoch over.
func TestSetEpochKeepsWhatIsUnderWay(t *testing.T) {
	c := newSamplers(10, 1)
	must(t, c[0].RecordBatch(0, 4))
	c.commit(t)
	c = c.resize(t, 1)
	c[0].SetEpoch(0)
	if n := c[0].Len(); n != 6 {
		t.Errorf("%d samples are left, want 6", n)
	}
	c[0].SetEpoch(1)
	if n := c[0].Len(); n != 10 {
		t.Errorf("the next epoch has %d samples", n)
	}
}

func TestRanksInDifferentEpochsCannotCommit(t *testing.T) {
	c := newSamplers(10, 2)
	c[1].SetEpoch(1)
	var all [][]byte
	for _, s := range c {
		b, err := s.Progress()
		must(t, err)
		all = append(all, b)
	}
	if _, err := c[0].Merge(all); !errors.Is(err, ErrDiverged) {
		t.Errorf("error %v", err)
	}
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// S7: another seed and epoch gave the same order. S8: a large data set took seconds and memory.
func TestOrdersOfHugeSets(t *testing.T) {
	a, b := NewElasticSampler(1<<40, 0), NewElasticSampler(1<<40, 1)
	a.SetEpoch(1)
	if x, y := a.Batch(0, 100).Indices, b.Batch(0, 100).Indices; reflect.DeepEqual(x, y) {
		t.Error("(seed 0, epoch 1) and (seed 1, epoch 0) are one order")
	}
	a.DealTo(7, 8)
	if got, want := a.Batch(1<<36, 1).Indices, a.order.at(7<<37+1<<36); uint64(got[0]) != want {
		t.Errorf("sample %d, want %d", got[0], want)
	}
}
