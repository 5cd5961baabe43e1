package screen

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
)

var t0 = time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)

// holding gives the first member a commit of the previous generation.
func holding(all []tables.Member) []tables.Member {
	all[0].Commit = tables.Commit{Generation: 1, Step: 100}
	return all
}

// TestStoryOfALostState checks the line for a state without a surviving holder.
func TestStoryOfALostState(t *testing.T) {
	s := NewStory(Palette{})
	s.Line(events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryInProcess}})
	if line := s.Line(events.RoundSealed{Generation: 2, From: 1, Members: []tables.Member{{}}}); !strings.Contains(line, "begins again") {
		t.Errorf("got %q", line)
	}
}

func place(node string, slot int) ident.Place {
	return ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(slot)}
}

// killed is the history of a job with three nodes, one of which loses its worker; the worker is
// respawned and admitted.
func killed() []events.Event {
	const job = "mnist-7f3a"
	var out []events.Event
	say := func(after time.Duration, b events.Body) {
		out = append(out, events.Event{Entity: job, Time: t0.Add(after), Body: b})
	}
	ref := func(node string, attempt int, g ident.Generation) tables.WorkerRef {
		return tables.WorkerRef{Job: job, Place: place(node, 0), Attempt: attempt, Generation: g, PID: 4100 + attempt}
	}
	members := func(who ...string) (ms []tables.Member) {
		for i, w := range who {
			node, attempt, _ := strings.Cut(w, ":")
			m := tables.Member{Place: place(node, 0), Rank: ident.Rank(i), Attempt: 1}
			if attempt != "" {
				m.Attempt = 2
			}
			ms = append(ms, m)
		}
		return ms
	}
	start := events.Cause{Kind: events.CauseStart, Rank: -1}
	c := place("node-c", 0)
	fault := events.Cause{Kind: events.CauseWorkerFailed, Place: &c, Node: "node-c", Rank: 2, Detail: "killed by signal 9 (SIGKILL)"}
	grow := events.Cause{Kind: events.CauseGrow, Place: &c, Rank: -1}
	say(0, events.JobSubmitted{Job: job, By: "/regroup/cli/ada@host", Spec: spec.Job{
		Name: "mnist", Command: []string{"python", "train.py"}, Workers: spec.Workers{Min: 2, Max: 3}, Recovery: spec.RecoveryInProcess,
	}})
	say(10*time.Millisecond, events.PlacementWaiting{Job: job, Reason: "needs 2 slots, 1 is free", Need: 2, Free: 1})
	say(time.Second, events.PlacementSet{Job: job, Places: []ident.Place{place("node-a", 0), place("node-b", 0), c}, Workers: spec.Workers{Min: 2, Max: 3}, Reason: "3 slots are free"})
	say(time.Second, events.RoundOpened{Job: job, Proposed: 1, Expected: []ident.Place{place("node-a", 0), place("node-b", 0), c}, Cause: start})
	for _, n := range []string{"node-a", "node-b", "node-c"} {
		say(1100*time.Millisecond, events.WorkerStarted{WorkerRef: ref(n, 1, 0)})
	}
	say(2*time.Second, events.RoundSealed{Job: job, Generation: 1, Members: members("node-a", "node-b", "node-c"), Cause: start, JudgeMS: 410})
	for i, n := range []string{"node-a", "node-b", "node-c"} {
		say(3*time.Second, events.WorkerReady{WorkerRef: ref(n, 1, 1), Rank: ident.Rank(i), Step: 1})
	}
	say(24*time.Second, events.WorkerExited{WorkerRef: ref("node-c", 1, 1), ExitCode: -1, Signal: "SIGKILL", Detail: "killed by signal 9 (SIGKILL)", Lines: []string{"step 100", "step 101"}})
	say(24*time.Second, events.IncidentOpened{Job: job, Incident: 1, From: 1, Cause: fault})
	say(24*time.Second, events.RoundOpened{Job: job, Proposed: 2, Expected: []ident.Place{place("node-a", 0), place("node-b", 0)}, Cause: fault})
	say(24010*time.Millisecond, events.JobRespawned{Job: job, Place: c, Attempt: 2})
	say(24020*time.Millisecond, events.RoundSealed{Job: job, Generation: 2, Members: holding(members("node-a", "node-b")), Cause: fault, From: 1, NoticeMS: 4, JudgeMS: 8})
	say(24050*time.Millisecond, events.WorkerReady{WorkerRef: ref("node-a", 1, 2), Rank: 0, Step: 102})
	say(24050*time.Millisecond, events.WorkerReady{WorkerRef: ref("node-b", 1, 2), Rank: 1, Step: 102})
	say(24060*time.Millisecond, events.IncidentClosed{
		Job: job, Incident: 1, From: 1, To: 2, Cause: fault,
		Phases: events.Phases{Notice: 4, Abort: 2.2, Judge: 6, Regroup: 11, Sync: 0.1, FirstStep: 18}, TotalMS: 41.3, StepsLost: new(uint64(1)), TraceID: "0af7651916cd43dd8448eb211c80319c",
	})
	say(25*time.Second, events.WorkerStarted{WorkerRef: ref("node-c", 2, 0)})
	say(40*time.Second, events.RoundOpened{Job: job, Proposed: 3, Cause: grow})
	say(41*time.Second, events.RoundSealed{Job: job, Generation: 3, Members: holding(members("node-a", "node-b", "node-c:2")), Cause: grow, From: 2})
	for i, n := range []string{"node-a", "node-b"} {
		say(41300*time.Millisecond, events.WorkerReady{WorkerRef: ref(n, 1, 3), Rank: ident.Rank(i), Step: 180})
	}
	say(41300*time.Millisecond, events.WorkerReady{WorkerRef: ref("node-c", 2, 3), Rank: 2, Step: 180})
	say(41300*time.Millisecond, events.IncidentClosed{Job: job, Incident: 2, From: 2, To: 3, Cause: grow, Phases: events.Phases{Regroup: 300}, TotalMS: 300, StepsLost: new(uint64)})
	for _, n := range []string{"node-a", "node-b"} {
		say(time.Minute, events.WorkerDone{WorkerRef: ref(n, 1, 3), Step: 400})
		say(time.Minute, events.WorkerExited{WorkerRef: ref(n, 1, 3), Done: true, Detail: "exit 0"})
	}
	say(time.Minute, events.JobSucceeded{JobEnd: events.JobEnd{Job: job, Reason: "all workers are done"}})
	return out
}

func TestStory(t *testing.T) {
	for name, p := range map[string]Palette{"story.txt": {}, "story_in_colour.txt": {On: true}} {
		s := NewStory(p)
		var b strings.Builder
		for _, e := range killed() {
			if l := s.Line(e.Body); l != "" {
				b.WriteString(l + "\n")
			}
		}
		golden.Compare(t, "testdata/"+name, b.String())
		if s.World != 3 || s.Generation != 3 {
			t.Errorf("world %d %s, want 3 and g3", s.World, s.Generation)
		}
		if begin, end := s.Summary(); begin != "g3 · 3 workers" || end != " · 1 recovery (last 41ms)" {
			t.Errorf("summary %q, %q", begin, end)
		}
	}
	s := NewStory(Palette{})
	s.Line(events.JobSubmitted{Spec: spec.Job{Workers: spec.Workers{Min: 2, Max: 6}}})
	s.Line(events.RoundSealed{Generation: 1, Members: make([]tables.Member, 4)})
	if begin, end := s.Summary(); begin != "g1 · 4 of 6 workers" || end != "" {
		t.Errorf("summary of fewer than are wanted: %q, %q", begin, end)
	}
}

func TestDescribeEveryFact(t *testing.T) {
	for _, row := range events.Catalog() {
		if row.Class == events.ClassFact && row.Type != (events.JobStopping{}).Type() && view.Describe(filled(row.New())) == "" {
			t.Errorf("%s has no sentence", row.Type)
		}
	}
	resumed := events.WorkerReady{Rank: 1, Step: 41, Checkpoint: &tables.Commit{Generation: 7, Step: 40}}
	resumed.Place, resumed.Generation = ident.Place{Node: "node-a"}, 1
	if got := view.Describe(resumed); got != "node-a/0 r1 g1 step 41, from the checkpoint of step 40" {
		t.Errorf("a worker that begins with a checkpoint: %q", got)
	}
	if got := view.Describe(events.RoundMissed{Proposed: 2}); got != "g2: all members have rejoined" {
		t.Errorf("members that have rejoined after they were missed: %q", got)
	}
	out := events.NodeQuarantined{Slot: new(ident.Slot(1)), NodeFact: events.NodeFact{Reason: "3 failures within 10m"}}
	out.Until = time.Date(2026, 11, 23, 0, 4, 5, 0, time.FixedZone("", 3600))
	if got := view.Describe(out); got != "slot 1: kept out until 22 Nov 23:04:05 UTC: 3 failures within 10m" {
		t.Errorf("a quarantine that ends on another day: %q", got)
	}
	var b strings.Builder
	for _, e := range killed() {
		fmt.Fprintf(&b, "%-22s %s\n", string(e.Body.Type().Family())+"."+e.Body.Type().Kind(), view.Describe(e.Body))
	}
	golden.Compare(t, "testdata/describe.txt", b.String())
}

// filled adds a reason to the facts that are described by it.
func filled(b events.Body) events.Body {
	end := events.JobEnd{Reason: "because"}
	switch b.(type) {
	case events.JobSucceeded:
		return events.JobSucceeded{JobEnd: end}
	case events.JobFailed:
		return events.JobFailed{JobEnd: end}
	case events.JobStopped:
		return events.JobStopped{JobEnd: end}
	case events.JobRejected:
		return events.JobRejected{Errors: []spec.FieldError{{Path: "name", Message: "is empty"}}}
	case events.NodeRejected:
		return events.NodeRejected{Errors: []spec.FieldError{{Path: "node", Message: "is empty"}}}
	case events.PlacementWaiting:
		return events.PlacementWaiting{Reason: "because"}
	case events.RoundClosed:
		return events.RoundClosed{Reason: "because"}
	}
	return b
}

func TestGantt(t *testing.T) {
	tl := timeline.New(killed(), t0.Add(time.Hour))
	if got := tl.End.Sub(tl.Start); got != time.Minute {
		t.Errorf("an ended job has a timeline of %s, want 1m", got)
	}
	var b bytes.Buffer
	for _, g := range []Gantt{{Width: 80}, {Width: 80, ASCII: true}, {Width: 30}} {
		if err := g.Draw(&b, tl); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	golden.Compare(t, "testdata/gantt.txt", b.String())
	for line := range strings.Lines(b.String()) {
		if Width(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
	}
}

func TestGanttOfNothing(t *testing.T) {
	var b bytes.Buffer
	if err := (Gantt{Width: 80}).Draw(&b, timeline.New(nil, t0)); err != nil {
		t.Fatal(err)
	}
	if b.String() != "no worker has started yet\n" {
		t.Errorf("got %q", b.String())
	}
}

// TestTimelineOfALostNode checks the end of the processes of a lost node, which do not report it.
func TestTimelineOfALostNode(t *testing.T) {
	facts := killed()[:11] // to the first steps
	facts = append(facts, events.Event{
		Entity: "mnist-7f3a", Time: t0.Add(10 * time.Second),
		Body: events.RoundOpened{Proposed: 2, Cause: events.Cause{Kind: events.CauseNodeLost, Node: "node-b", Rank: 1}},
	})
	tl := timeline.New(facts, t0.Add(20*time.Second))
	for _, l := range tl.Incarnations {
		lost := l.Place.Node == "node-b"
		if (l.Failure == "node lost") != lost {
			t.Errorf("%s: failure %q", l.Place, l.Failure)
		}
		if want := map[bool]time.Duration{true: 10 * time.Second, false: 20 * time.Second}[lost]; l.Ended.Sub(t0) != want {
			t.Errorf("%s ended after %s, want %s", l.Place, l.Ended.Sub(t0), want)
		}
	}
}
