package view

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
)

func epoch(n, indices uint64, change func(*tables.LedgerEpoch)) tables.LedgerEpoch {
	e := tables.LedgerEpoch{Epoch: n, Done: true}
	for i := range indices {
		e.Count++
		e.Sum += tables.SampleHash(i)
	}
	if change != nil {
		change(&e)
	}
	return e
}

func TestSamplesOf(t *testing.T) {
	const n = 1000
	open := func(e *tables.LedgerEpoch) { e.Done = false }
	for name, c := range map[string]struct {
		epochs []tables.LedgerEpoch
		want   Samples
	}{
		"each once":                  {[]tables.LedgerEpoch{epoch(0, n, nil), epoch(1, n, nil)}, Samples{2, n, 0, 0, false}},
		"the current one is not due": {[]tables.LedgerEpoch{epoch(0, n, nil), epoch(1, 10, open)}, Samples{1, n, 0, 0, false}},
		"three missing":              {[]tables.LedgerEpoch{epoch(0, n-3, nil)}, Samples{1, n, 3, 0, false}},
		"two too many":               {[]tables.LedgerEpoch{epoch(0, n+2, nil)}, Samples{1, n, 0, 2, false}},
		"too many in the current":    {[]tables.LedgerEpoch{epoch(0, n+2, open)}, Samples{0, n, 0, 2, false}},
		"one for another": {[]tables.LedgerEpoch{epoch(0, n, func(e *tables.LedgerEpoch) {
			e.Sum += tables.SampleHash(7) - tables.SampleHash(8)
		})}, Samples{1, n, 1, 1, false}},
		"an epoch twice":  {[]tables.LedgerEpoch{epoch(0, n, nil), epoch(0, n, nil)}, Samples{1, n, 0, n, false}},
		"nothing yet":     {nil, Samples{0, n, 0, 0, false}},
		"nothing at all":  {[]tables.LedgerEpoch{epoch(0, 0, nil)}, Samples{1, n, n, 0, false}},
		"full but not up": {[]tables.LedgerEpoch{epoch(0, n, open)}, Samples{0, n, 0, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			got := SamplesOf(tables.Ledger{Samples: n, Epochs: c.epochs})
			if *got != c.want {
				t.Errorf("got %+v, want %+v", *got, c.want)
			}
			if got.Exact() != (c.want.Missing+c.want.Repeated == 0) {
				t.Errorf("Exact = %v", got.Exact())
			}
		})
	}
	if SamplesOf(tables.Ledger{}) != nil {
		t.Error("a program without a ledger must have no samples")
	}
}

func TestSummarize(t *testing.T) {
	t0 := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	place := func(n string, s int) ident.Place { return ident.Place{Node: ident.NodeID(n), Slot: ident.Slot(s)} }
	v := events.JobView{
		Job: "mnist-7f3a", State: events.JobStateSucceeded, Submitted: t0, Ended: t0.Add(133 * time.Second), Step: 4612,
		Workers: []tables.WorkerView{{WorkerRef: tables.WorkerRef{Place: place("b", 0), Incarnation: "B1", PID: 77}}},
		Generations: []events.GenerationView{
			{Generation: 1, World: 2, Cause: events.Cause{Kind: events.CauseStart}, Members: []tables.Member{
				{Place: place("a", 0), Incarnation: "A1", PID: 41}, {Place: place("b", 0), Incarnation: "B1", Rank: 1},
			}},
			{Generation: 2, World: 1, Cause: events.Cause{Kind: events.CauseWorkerFailed, Rank: 1}, Members: []tables.Member{
				{Place: place("a", 0), Incarnation: "A1", PID: 41},
			}},
		},
		Incidents: []events.IncidentClosed{{
			Job: "mnist-7f3a", Incident: 1, From: 1, To: 2, Cause: events.Cause{Kind: events.CauseWorkerFailed},
			Phases: events.Phases{Notice: 4, Abort: 1.5, Judge: 2, Regroup: 3, Sync: .5, FirstStep: 9}, TotalMS: 20, StepsLost: new(uint64(1)), TraceID: "abc",
		}},
		Ledger: tables.Ledger{Samples: 10, Epochs: []tables.LedgerEpoch{epoch(0, 10, nil)}},
	}
	got, err := json.MarshalIndent(Summarize(v, t0.Add(time.Hour)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/summary.json", string(got)+"\n")
	s := Summarize(v, t0)
	if s.StepsLost() != "1" || s.Failures() != 1 {
		t.Errorf("steps lost %s, failures %d, want 1 and 1", s.StepsLost(), s.Failures())
	}
}

func TestNothingIsNull(t *testing.T) {
	got, err := json.Marshal(Summarize(events.JobView{Job: "a-0000", State: events.JobStateFailed, Code: errcode.Exhausted}, time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"job":"a-0000","outcome":"failed","exit_code":14,"seconds":0,"steps":0,"generations":[],"incidents":[],"samples":null,"metrics":{}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestATooLargeEpochIsNotProven checks that 2^63 samples are not hashed: only the counts are
// checked, and the summary says so.
func TestATooLargeEpochIsNotProven(t *testing.T) {
	const n = 1 << 63
	got := SamplesOf(tables.Ledger{Samples: n, Epochs: []tables.LedgerEpoch{{Count: n, Sum: 1, Done: true}, {Epoch: 1, Count: n - 2, Done: true}}})
	if want := (Samples{Epochs: 2, PerEpoch: n, Missing: 2, Unproven: true}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
	if (Samples{Unproven: true}).Exact() {
		t.Error("what is not proven counts as exact")
	}
}

// TestMembersOfAJob: of one that has ended its last generation counts, although no worker is there.
func TestMembersOfAJob(t *testing.T) {
	v := job(events.JobStateRunning)
	v.Generation, v.Generations = 2, []events.GenerationView{{Generation: 1, World: 3}, {Generation: 2, World: 4}}
	for i := range v.Workers {
		v.Workers[i].WorkerRef.Generation = 2
	}
	v.Workers[3].State = tables.WorkerStateFailed
	if got := MembersText(v); got != "3 of 2-4 workers" {
		t.Errorf("while it runs: %q", got)
	}
	v.State = events.JobStateFailed
	if got := MembersText(v); got != "4 of 2-4 workers last" || Members(v) != 0 || LastWorld(v) != 4 {
		t.Errorf("at its end: %q, %d, %d", got, Members(v), LastWorld(v))
	}
	v.Generation, v.Generations = 0, nil
	if got := MembersText(v); got != "no worker has trained" {
		t.Errorf("at its end, without a generation: %q", got)
	}
}
