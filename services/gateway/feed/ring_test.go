package feed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster"
)

// TestRing compares a ring with a list: what it holds are the newest items within its bounds, each
// reader gets them in order, and is woken by the next one.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most, bytes := rapid.IntRange(1, 20).Draw(t, "items"), rapid.IntRange(1, 60).Draw(t, "bytes")
		r := NewRing(most, bytes)
		var all []Item
		last := uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			i := Item{Data: make([]byte, rapid.IntRange(0, 10).Draw(t, "size"))}
			if rapid.Bool().Draw(t, "numbered") {
				i.Sequence = last + uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
			}
			_, changed := r.After(last, 1)
			r.Add(i)
			select {
			case <-changed:
			default:
				t.Fatal("a reader was not woken")
			}
			if i.Sequence == 0 {
				i.Sequence = last + 1
			}
			last = i.Sequence
			all = append(all, i)
		}
		held, _ := r.After(0, 1000)
		size := 0
		for i := range held {
			size += len(held[i].Data)
			if held[i].Sequence != all[len(all)-len(held)+i].Sequence {
				t.Fatalf("it holds %v of %v", held, all)
			}
		}
		if len(held) > most || (size > bytes && len(held) > 1) {
			t.Fatalf("it holds %d items of %d bytes, at most %d of %d are allowed", len(held), size, most, bytes)
		}
		if n := len(held); n > 0 && n < len(all) && n < most && size+len(all[len(all)-n-1].Data) <= bytes {
			t.Fatal("it has dropped an item that has room")
		}
		if r.Last() != last {
			t.Fatalf("the last is %d, want %d", r.Last(), last)
		}
		after, n := uint64(rapid.IntRange(0, 70).Draw(t, "after")), rapid.IntRange(1, 5).Draw(t, "at once")
		want := slices.DeleteFunc(slices.Clone(held), func(i Item) bool { return i.Sequence <= after })
		if got, _ := r.After(after, n); len(got) != min(n, len(want)) || (len(got) > 0 && got[0].Sequence != want[0].Sequence) {
			t.Fatalf("after %d: %v of %v", after, got, want)
		}
		back := rapid.IntRange(0, 30).Draw(t, "back")
		if got, _ := r.After(r.Back(back), 1000); len(got) != min(back, len(held)) {
			t.Fatalf("the newest %d are %v", back, got)
		}
	})
}

// TestAReaderOfAPartIsNotHeldUp: a reader that has read a part of the items learns at once that
// there are more; one that has read all of them learns it with the next item.
func TestAReaderOfAPartIsNotHeldUp(t *testing.T) {
	r := NewRing(10, 100)
	for range 3 {
		r.Add(Item{})
	}
	closed := func(more <-chan struct{}) bool {
		select {
		case <-more:
			return true
		default:
			return false
		}
	}
	part, more := r.After(0, 2)
	rest, next := r.After(part[1].Sequence, 2)
	if len(rest) != 1 || !closed(more) || closed(next) {
		t.Fatalf("%d and %d items; more: %v, another: %v", len(part), len(rest), closed(more), closed(next))
	}
	if r.Add(Item{}); !closed(next) {
		t.Error("the reader was not woken")
	}
}

// TestFactsAreReadOnce, in their order, where the ring has dropped the oldest: from the stream, and
// then from the ring.
func TestFactsAreReadOnce(t *testing.T) {
	bus := memory.New()
	f := New(bus.Ports(), func(subject string, err error) { t.Errorf("%s: %v", subject, err) })
	f.Facts = NewRing(3, 1<<20)
	once := cluster.Decoder{}
	for i := 1; i <= 9; i++ {
		job := ident.JobID([]string{"a-0001", "b-0002"}[i%2])
		m, err := cloudevent.Encode(events.Event{ID: fmt.Sprint(i), Source: "/regroup/registry", Entity: string(job), Number: uint64(i), Time: time.Now(), Body: events.JobFinishing{Job: job}})
		if err != nil {
			t.Fatal(err)
		}
		at, err := bus.Ports().Log.Publish(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if stored, err := bus.Ports().Log.Next(t.Context(), events.StreamFacts, events.AllFacts, at); err != nil {
			t.Fatal(err)
		} else if item, ok := f.item(stored, once); ok && i < 9 { // the ring is behind the stream
			f.Facts.Add(item)
		}
	}
	for job, want := range map[ident.JobID]string{"": " 1 2 3 4 5 6 7 8 9", "a-0001": " 2 4 6 8"} {
		got, at := "", uint64(0)
		take := func(i Item) error {
			got += " " + i.Event.ID
			return nil
		}
		for range 3 {
			var err error
			if at, _, err = f.Read(t.Context(), job, at, take); err != nil {
				t.Fatal(err)
			}
		}
		if got != want {
			t.Errorf("of %q%s, want%s", job, got, want)
		}
	}
}

// TestSeriesStayBounded: points become sparser instead of more, and cover all of the time.
func TestSeriesStayBounded(t *testing.T) {
	s := series{jobs: map[ident.JobID]*jobSeries{}}
	began := time.Unix(1_700_000_000, 0)
	for i := range 50_000 {
		s.take(events.Progress{Job: "x", Generation: 1, Step: uint64(i), Samples: uint64(i) * 32, Metrics: map[string]float64{"loss": float64(i)}}, began.Add(time.Duration(i)*time.Second))
	}
	for name, points := range s.jobs["x"].points {
		if n := len(points); n > maxPoints || n < maxPoints/4 {
			t.Errorf("%s has %d points", name, n)
		}
		if first := points[0].Time.Sub(began); first > time.Minute {
			t.Errorf("%s begins %s late", name, first)
		}
		if rate := points[len(points)-1].Value; name == MetricStepsRate && (rate < .99 || rate > 1.01) {
			t.Errorf("%g steps a second, want 1", rate)
		}
	}
	for i := range 2 * seriesJobs {
		s.take(events.Progress{Job: ident.JobID(rune('a'+i%26)) + ident.JobID(time.Duration(i).String()), Generation: 1}, began.Add(time.Duration(100_000+i)*time.Second))
	}
	if len(s.jobs) > seriesJobs || s.jobs["x"] != nil {
		t.Errorf("%d jobs are kept, and the oldest is there: %v", len(s.jobs), s.jobs["x"] != nil)
	}
}

// TestOldProgressIsPassedOver: signals may come late and twice.
func TestOldProgressIsPassedOver(t *testing.T) {
	s := series{jobs: map[ident.JobID]*jobSeries{}}
	at := time.Unix(1_700_000_000, 0)
	tell := func(g ident.Generation, step uint64) bool {
		at = at.Add(time.Second)
		_, ok := s.take(events.Progress{Job: "x", Generation: g, Step: step}, at)
		return ok
	}
	for i, c := range []struct {
		g    ident.Generation
		step uint64
		want bool
	}{{1, 5, true}, {1, 4, false}, {2, 3, true}, {1, 9, false}, {2, 4, true}} {
		if got := tell(c.g, c.step); got != c.want {
			t.Errorf("%d: step %d of %s is sent: %v, want %v", i, c.step, c.g, got, c.want)
		}
	}
	v := events.JobView{Job: "x", State: events.JobStateRunning, Generation: 2, Step: 1}
	if s.progressed(&v); v.Step != 4 {
		t.Errorf("the view has step %d, want 4", v.Step)
	}
	v = events.JobView{Job: "x", State: events.JobStateRunning, Generation: 3, Step: 1, StepAt: at.Add(-time.Second)}
	if s.progressed(&v); v.Step != 4 {
		t.Errorf("the view of a generation without a step has step %d, want 4, which was heard last", v.Step)
	}
	v = events.JobView{Job: "x", State: events.JobStateRunning, Generation: 3, Step: 1, StepAt: at.Add(time.Second)}
	if s.progressed(&v); v.Step != 1 {
		t.Errorf("the view of a later generation has step %d, want 1, which is newer", v.Step)
	}
}

// TestRedundancyIsHeardAtOnce: also before the first step of a generation, whose step is unknown.
func TestRedundancyIsHeardAtOnce(t *testing.T) {
	s := series{jobs: map[ident.JobID]*jobSeries{}}
	at := time.Unix(1_700_000_000, 0)
	tell := func(g ident.Generation, step uint64, losses int) (ProgressUpdate, bool) {
		at = at.Add(time.Millisecond)
		p := events.Progress{Job: "x", Generation: g, Step: step}
		if losses >= 0 {
			p.Redundancy = &events.RedundancyReport{Commit: tables.Commit{Generation: 1, Step: 4}, Losses: losses}
		}
		return s.take(p, at)
	}
	for i, c := range []struct {
		g          ident.Generation
		step       uint64
		losses     int // -1 = nothing is said of them
		want       bool
		wantStep   uint64
		wantOf     ident.Generation
		wantLosses int
	}{
		{1, 5, 1, true, 5, 1, 1},
		{1, 6, 1, false, 0, 0, 0},
		{1, 7, 2, true, 7, 1, 2},
		{1, 8, -1, false, 0, 0, 0},
		{2, 0, -1, false, 0, 0, 0},
		{2, 0, 0, true, 8, 2, 0},
		{1, 9, 3, false, 0, 0, 0},
		{2, 0, 0, false, 0, 0, 0},
		{2, 5, 1, true, 5, 2, 1},
	} {
		u, ok := tell(c.g, c.step, c.losses)
		if ok != c.want {
			t.Errorf("%d: sent: %v, want %v", i, ok, c.want)
		}
		if ok && (u.Step != c.wantStep || u.Redundancy.Generation != c.wantOf || u.Redundancy.Losses != c.wantLosses) {
			t.Errorf("%d: step %d, %+v, want step %d and %d losses in %s", i, u.Step, u.Redundancy, c.wantStep, c.wantLosses, c.wantOf)
		}
	}
	for g := ident.Generation(2); g <= 3; g++ {
		v := events.JobView{Job: "x", State: events.JobStateRunning, Generation: g}
		if s.progressed(&v); v.Redundancy == nil || v.Redundancy.Generation != 2 || v.Redundancy.Losses != 1 {
			t.Errorf("the view in %s has %+v", g, v.Redundancy)
		}
	}
}

// TestAnItemIsReplaced, if it is still there; readers who have not read it get the later one alone.
func TestAnItemIsReplaced(t *testing.T) {
	r := NewRing(3, 100)
	sequences := func() (all []uint64) {
		items, _ := r.After(0, 10)
		for _, i := range items {
			all = append(all, i.Sequence)
		}
		return all
	}
	for _, c := range []struct {
		earlier, next uint64
		want          []uint64
		first         uint64 // from which only what was replaced is missing
	}{{0, 5, []uint64{5}, 5}, {0, 6, []uint64{5, 6}, 5}, {5, 7, []uint64{6, 7}, 5}, {5, 8, []uint64{6, 7, 8}, 5}, {8, 9, []uint64{6, 7, 9}, 5}, {4, 10, []uint64{7, 9, 10}, 7}} {
		r.Replace(c.earlier, Item{Sequence: c.next, Data: make([]byte, 10)})
		if got := sequences(); !slices.Equal(got, c.want) || r.size != 10*len(got) || r.First() != c.first {
			t.Errorf("with %d in place of %d: %v from %d in %d bytes, want %v from %d", c.next, c.earlier, got, r.First(), r.size, c.want, c.first)
		}
	}
}
