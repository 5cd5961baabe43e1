package screen

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/view"
)

func TestFinal(t *testing.T) {
	var sum uint64
	for i := range uint64(10) {
		sum += tables.SampleHash(i)
	}
	good := events.JobView{
		Job: "mnist-7f3a", State: events.JobStateSucceeded, Submitted: t0, Ended: t0.Add(133 * time.Second),
		Generations: []events.GenerationView{{Generation: 1}, {Generation: 2}},
		Incidents:   []events.IncidentClosed{{Incident: 1, Cause: events.Cause{Kind: events.CauseWorkerFailed}, StepsLost: new(uint64(1))}},
		Ledger:      tables.Ledger{Samples: 10, Epochs: []tables.LedgerEpoch{{Count: 10, Sum: sum, Done: true}}},
	}
	unsaved := good
	unsaved.Generation = 2
	unsaved.Workers = []tables.WorkerView{
		{State: tables.WorkerStateSucceeded, WorkerRef: tables.WorkerRef{Place: place("node-a", 0), Generation: 2}},
		{State: tables.WorkerStateFailed, WorkerRef: tables.WorkerRef{Place: place("node-a", 1), Generation: 2}, Detail: "OSError: no space left on device, exit code 1"},
		{State: tables.WorkerStateFailed, WorkerRef: tables.WorkerRef{Place: place("node-a", 2), Generation: 1}, Detail: "which the second generation did without"},
	}
	inexact := good
	inexact.Ledger.Epochs = []tables.LedgerEpoch{{Count: 10, Sum: sum + 1, Done: true}}
	bad := events.JobView{
		Job: "mnist-7f3a", State: events.JobStateFailed, Code: errcode.Exhausted, Reason: "more than 0 failures in 1h0m0s", Submitted: t0, Ended: t0.Add(3 * time.Second),
		Generations: []events.GenerationView{{Generation: 1}},
		FirstError: &tables.WorkerView{
			Rank: 3, Detail: "exit 1", Lines: []string{"Traceback (most recent call last):", "ValueError: no"},
			WorkerRef: tables.WorkerRef{Place: place("node-a", 3), Attempt: 1, Generation: 1, PID: 4121},
		},
	}
	bad.Dropped = 12
	stopped := events.JobView{Job: "mnist-7f3a", State: events.JobStateStopped, Reason: "stopped by ada", Submitted: t0, Ended: t0.Add(4 * time.Hour)}
	running := events.JobView{Job: "mnist-7f3a", State: events.JobStateRunning, Submitted: t0}
	var b bytes.Buffer
	for _, v := range []events.JobView{good, unsaved, inexact, bad, stopped, running} {
		if err := Final(&b, Palette{}, v, t0.Add(12*time.Second)); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	golden.Compare(t, "testdata/final.txt", b.String())
}

func TestPalette(t *testing.T) {
	for name, c := range map[string]struct {
		mode     string
		terminal bool
		env      map[string]string
		want     bool
	}{
		"terminal":           {"auto", true, nil, true},
		"pipe":               {"auto", false, nil, false},
		"flag wins":          {"always", false, map[string]string{"NO_COLOR": "1"}, true},
		"never wins":         {"never", true, map[string]string{"CLICOLOR_FORCE": "1"}, false},
		"NO_COLOR":           {"auto", true, map[string]string{"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, false},
		"NO_COLOR but empty": {"auto", true, map[string]string{"NO_COLOR": ""}, true},
		"forced":             {"", false, map[string]string{"CLICOLOR_FORCE": "1"}, true},
		"not forced":         {"", false, map[string]string{"CLICOLOR_FORCE": "0"}, false},
		"dumb":               {"", true, map[string]string{"TERM": "dumb"}, false},
	} {
		if p := NewPalette(c.mode, c.terminal, func(k string) string { return c.env[k] }); p.On != c.want {
			t.Errorf("%s: %v, want %v", name, p.On, c.want)
		}
	}
}

func TestPrefix(t *testing.T) {
	p := Palette{}
	if got := p.Prefix(place("node-a", 1), 2, 3); got != "[node-a r2 g3]" {
		t.Errorf("got %q", got)
	}
	if got := p.Prefix(place("node-a", 1), -1, 0); got != "[node-a/1]" {
		t.Errorf("got %q", got)
	}
	p.On = true
	if a, b := p.Prefix(place("a", 0), 0, 1), p.Prefix(place("a", 0), 1, 1); a[:5] == b[:5] {
		t.Errorf("ranks 0 and 1 have the same colour: %q %q", a, b)
	}
	if got := Width(p.Prefix(place("node-a", 1), 2, 3)); got != 14 {
		t.Errorf("paint counts: width %d, want 14", got)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	p := Palette{On: true}
	if err := Table(&b, p, []string{"JOB", "STATE"}, [][]string{{"a-0001", p.Good("running"), "x"}, {"longer-0001", "waiting", "needs 8, 3 free"}}); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/table.txt", b.String())
}

func TestSticky(t *testing.T) {
	now := t0
	var err, out bytes.Buffer
	s := NewSticky(&err, true, func() time.Time { return now })
	s.Set("step 1")
	if e := s.Above(&out, "hello"); e != nil {
		t.Fatal(e)
	}
	s.Set("step 2")
	s.Clear()
	if got, want := err.String(), "\r\x1b[Kstep 1\r\x1b[Kstep 1\r\x1b[Kstep 2\r\x1b[K"; got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}
	if out.String() != "hello\n" {
		t.Errorf("above: %q", out.String())
	}

	err.Reset()
	s = NewSticky(&err, false, func() time.Time { return now })
	for i := range 61 { // one per second
		now = t0.Add(time.Duration(i) * time.Second)
		s.Set("working")
	}
	s.Clear()
	if got, want := err.String(), "working\nworking\nworking\n"; got != want {
		t.Errorf("without a terminal: %q, want it every 30 s: %q", got, want)
	}
}

func TestAboveReportsTheWriter(t *testing.T) {
	s := NewSticky(io.Discard, true, time.Now)
	r, w := io.Pipe()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if s.Above(w, "x") == nil {
		t.Error("a closed stdout is no error")
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 41300 * time.Microsecond: "41ms", 1100 * time.Millisecond: "1.1s", 59 * time.Second: "59s",
		133 * time.Second: "2m13s", 3*time.Hour + 2*time.Minute: "3h02m", 99 * time.Hour: "4d03h",
	} {
		if got := view.Span(d); got != want {
			t.Errorf("view.Span(%s) = %q, want %q", d, got, want)
		}
	}
}

// TestRootCauseShowsTheException checks that the exception and the user's frame come first, on
// separate lines, and that a worker that only lost a peer is not the root cause.
func TestRootCauseShowsTheException(t *testing.T) {
	x := &tables.Exception{Type: "RuntimeError", Message: "batch 5\nis broken", File: "train.py", Line: 13, Function: "load", Cause: "KeyError: 'x'"}
	w := tables.WorkerView{
		Rank: 2, Detail: x.String() + ", exit code 1", Exception: x, Lines: []string{"Traceback (most recent call last):"},
		WorkerRef: tables.WorkerRef{Place: place("node-b", 0), Attempt: 1, Generation: 3, PID: 77},
	}
	const want = `╭─ first error: r2 on node-b/0, g3, pid 77, attempt 1
│ RuntimeError: batch 5\nis broken
│   at train.py:13 in load
│   caused by KeyError: 'x'
│ exit code 1
│
│ Traceback (most recent call last):
╰─ regroup logs mnist-7f3a --rank 2
`
	if got := RootCause(Palette{}, "mnist-7f3a", w); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s := NewStory(Palette{})
	s.Line(events.RoundSealed{Generation: 1, Members: []tables.Member{{Place: place("a", 0)}, {Place: place("node-b", 0), Rank: 1}}})
	exit := events.WorkerExited{WorkerRef: w.WorkerRef, ExitCode: 1, Detail: w.Detail, Exception: x}
	if got, want := s.Line(exit), `✘ r1 on node-b/0 died: RuntimeError: batch 5
is broken (train.py:13 in load, caused by KeyError: 'x'), exit code 1`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	exit = events.WorkerExited{WorkerRef: w.WorkerRef, Asked: true, Detail: "ValueError: x, killed by signal 15 (SIGTERM)", Exception: &tables.Exception{Type: "ValueError"}}
	if got, want := s.Line(exit), "✘ r1 on node-b/0 failed: ValueError: x, killed by signal 15 (SIGTERM) (asked to stop)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	lost := tables.Exception{Type: "RuntimeError", Message: "Connection closed by peer", Peer: true}
	exit = events.WorkerExited{WorkerRef: tables.WorkerRef{Place: place("a", 0)}, ExitCode: 1, Detail: lost.String() + ", exit code 1", Exception: &lost}
	if got, want := s.Line(exit), "· r0 on a/0 ended because it lost a peer: RuntimeError: Connection closed by peer, exit code 1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
