package timeline_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
	"github.com/regroup-io/regroup/services/cluster/timeline"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// history is a job of three nodes: node-c is killed and comes back, then nobody observes anything
// for a time.
func history() *timeline.Timeline {
	const job = "mnist-7f3a"
	var facts []events.Event
	say := func(s float64, b events.Body) {
		facts = append(facts, events.Event{Entity: job, Time: noon.Add(time.Duration(s * float64(time.Second))), Body: b})
	}
	ref := func(node string, attempt int, g ident.Generation) tables.WorkerRef {
		return tables.WorkerRef{Job: job, Place: ident.Place{Node: ident.NodeID(node)}, Attempt: attempt, Generation: g}
	}
	members := func(who ...tables.WorkerRef) (all []tables.Member) {
		for i, w := range who {
			all = append(all, tables.Member{Place: w.Place, Rank: ident.Rank(i), Attempt: w.Attempt})
		}
		return all
	}
	a, b, c, again := ref("node-a", 1, 1), ref("node-b", 1, 1), ref("node-c", 1, 1), ref("node-c", 2, 0)
	killed := events.Cause{Kind: events.CauseWorkerFailed, Place: &c.Place, Node: "node-c", Rank: 2, Detail: "killed by <signal> 9 & \"SIGKILL\"\x1b[31m"}
	say(0, events.JobSubmitted{Job: job, Spec: spec.Job{Recovery: spec.RecoveryInProcess}})
	for _, w := range []tables.WorkerRef{a, b, c} {
		say(1, events.WorkerStarted{WorkerRef: w})
	}
	say(2, events.RoundSealed{Job: job, Generation: 1, Members: members(a, b, c)})
	for i, w := range []tables.WorkerRef{a, b, c} {
		say(3, events.WorkerReady{WorkerRef: w, Rank: ident.Rank(i), Step: 1})
	}
	say(24, events.WorkerExited{WorkerRef: c, ExitCode: -1, Signal: "SIGKILL"})
	say(24, events.IncidentOpened{Job: job, Incident: 1, From: 1, Cause: killed})
	say(24, events.RoundOpened{Job: job, Proposed: 2, Cause: killed})
	say(24.2, events.RoundSealed{Job: job, Generation: 2, Members: members(a, b), From: 1})
	for i, w := range []tables.WorkerRef{a, b} {
		say(26, events.WorkerReady{WorkerRef: w, Rank: ident.Rank(i), Step: 102})
	}
	say(26, events.IncidentClosed{Job: job, Incident: 1, From: 1, To: 2, Cause: killed, Phases: events.Phases{Notice: 4, Judge: 196, Regroup: 1000, FirstStep: 800}, TotalMS: 2000})
	say(27, events.WorkerStarted{WorkerRef: again})
	say(40, events.RoundSealed{Job: job, Generation: 3, Members: members(a, b, again), From: 2})
	for i, w := range []tables.WorkerRef{a, b, again} {
		say(41, events.WorkerReady{WorkerRef: w, Rank: ident.Rank(i), Step: 180})
	}
	say(41, events.IncidentOpened{Job: job, Incident: 2, From: 3, Cause: events.Cause{Kind: events.CauseGrow, Rank: -1}})
	say(49, events.JobProgressed{Job: job, Generation: 3, Step: 200})
	t := timeline.New(facts, noon.Add(time.Minute))
	t.UnobservedFrom(noon.Add(50 * time.Second))
	return t
}

func svg(t require, of *timeline.Timeline) string {
	t.Helper()
	var b bytes.Buffer
	if err := timeline.SVG(&b, of); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// require is what tests and properties have in common.
type require interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

func TestSVG(t *testing.T) {
	of := history()
	golden.Compare(t, "testdata/timeline.svg", svg(t, of))
	isPicture(t, svg(t, of))
	if text := svg(t, timeline.New(nil, noon)); !strings.Contains(text, "no worker has started yet") {
		t.Errorf("without workers: %s", text)
	}
}

// TestManySlots: those that have failed have rows, and one shows the others, none of which is lost.
func TestManySlots(t *testing.T) {
	of := &timeline.Timeline{Job: "big", Start: noon, End: noon.Add(time.Hour)}
	for i := range 200 {
		l := &timeline.Incarnation{Place: ident.Place{Node: ident.NodeID(fmt.Sprintf("node-%03d", i))}, Rank: ident.Rank(i), Attempt: 1, Ended: of.End}
		l.Stretches = []timeline.Stretch{{Doing: timeline.Restoring, From: noon, To: noon.Add(time.Minute)}, {Doing: timeline.Training, From: noon.Add(time.Minute), To: of.End}}
		if i >= 198 {
			l.Failure = "SIGKILL"
		}
		if i >= 100 && i < 150 {
			l.Stretches[1].Doing = timeline.Unobserved
		}
		of.Incarnations = append(of.Incarnations, l)
	}
	text := svg(t, of)
	isPicture(t, text)
	for _, want := range []string{">node-198/0 r198<", ">node-199/0 r199<", ">node-000/0 r0<", ">137 other slots<", "none of which failed", "36 % of 137 slots: not observed", "64 % of 137 slots: training"} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if strings.Contains(text, ">node-063/0 r63<") {
		t.Error("a 65th row")
	}
}

// isPicture checks that a picture is XML, without scripts or anything from elsewhere, and that all
// of it is within its width and height.
func isPicture(t require, text string) {
	t.Helper()
	if strings.Contains(text, "<script") || strings.Count(text, "http") != 1 || strings.ContainsRune(text, '\x1b') {
		t.Errorf("it has a script, a foreign address or a control character")
	}
	height := 0.0
	for dec := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		has := map[string]float64{}
		for _, a := range e.Attr {
			if x, err := strconv.ParseFloat(a.Value, 64); err == nil {
				has[a.Name.Local] = x
			}
		}
		switch e.Name.Local {
		case "svg":
			if height = has["height"]; has["width"] != 900 {
				t.Errorf("%v pixels wide", has["width"])
			}
		case "rect", "text", "line":
			right, bottom := has["x"]+has["width"], has["y"]+has["height"]
			if min(has["x"], has["y"], has["width"], has["height"]) < 0 || max(right, has["x2"]) > 900 || max(bottom, has["y2"]) > height {
				t.Errorf("%s %v is outside of 900 by %v", e.Name.Local, has, height)
			}
		}
	}
}

// slice is what the tests read of a trace event.
type slice struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat"`
	Phase string         `json:"ph"`
	TS    int64          `json:"ts"`
	Dur   int64          `json:"dur"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	Args  map[string]any `json:"args"`
}

func trace(t require, of *timeline.Timeline) (text string, all []slice) {
	t.Helper()
	var b bytes.Buffer
	if err := timeline.Perfetto(&b, of); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		TraceEvents []slice `json:"traceEvents"`
	}
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return b.String(), doc.TraceEvents
}

func TestPerfetto(t *testing.T) {
	text, all := trace(t, history())
	golden.Compare(t, "testdata/perfetto.json", text)
	flat(t, all)
	if strings.ContainsRune(text, '\x1b') {
		t.Error("it has a control character")
	}
}

// flat checks that no two slices of a thread overlap, and returns how many microseconds they have
// by category and name.
func flat(t require, all []slice) map[string]int64 {
	t.Helper()
	threads, sums := map[[2]int][]slice{}, map[string]int64{}
	for _, e := range all {
		if e.Phase == "X" {
			threads[[2]int{e.PID, e.TID}] = append(threads[[2]int{e.PID, e.TID}], e)
			sums[e.Cat+" "+e.Name] += e.Dur
		}
	}
	for thread, of := range threads {
		slices.SortStableFunc(of, func(a, b slice) int { return int(a.TS - b.TS) })
		for i, e := range of {
			if e.Dur < 0 || e.TS < 0 || i > 0 && e.TS < of[i-1].TS+of[i-1].Dur {
				t.Errorf("thread %v: %+v begins before %+v ends", thread, e, of[max(0, i-1)])
			}
		}
	}
	return sums
}

// TestExportsAgree: of any timeline, whatever the clocks of its machines say, the picture is whole,
// no slices overlap, and where its processes do not overlap the sums are those of the timeline.
func TestExportsAgree(t *testing.T) {
	doings := []timeline.Doing{timeline.Rendezvous, timeline.Restoring, timeline.Training, timeline.Running, timeline.Unobserved}
	rapid.Check(t, func(t *rapid.T) {
		of := &timeline.Timeline{Job: ident.JobID(rapid.StringN(1, 20, -1).Draw(t, "job")), Start: noon, End: noon}
		prefix := rapid.StringN(0, 30, -1).Draw(t, "node")
		overlap := rapid.Bool().Draw(t, "overlap")
		sums := map[string]int64{}
		moment := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(t, name)) * time.Microsecond
		}
		for n := range rapid.SampledFrom([]int{0, 1, 3, 8, 70}).Draw(t, "slots") {
			at := noon
			place := ident.Place{Node: ident.NodeID(fmt.Sprintf("%s%d", prefix, n/8)), Slot: ident.Slot(n % 8)}
			for attempt := range rapid.IntRange(1, 3).Draw(t, "lives") {
				l := &timeline.Incarnation{Place: place, Attempt: attempt, Rank: ident.Rank(rapid.IntRange(-1, 90).Draw(t, "rank"))}
				if overlap && attempt > 0 {
					at = noon.Add(at.Sub(noon) / 2)
				}
				for range rapid.IntRange(0, 4).Draw(t, "stretches") {
					s := timeline.Stretch{Doing: rapid.SampledFrom(doings).Draw(t, "doing"), From: at, To: at.Add(moment("length", 1_000_000))}
					at = s.To
					name := "worker " + string(s.Doing)
					if s.Doing == timeline.Unobserved {
						name = "worker unknown"
					}
					sums[name] += s.To.Sub(s.From).Microseconds()
					l.Stretches = append(l.Stretches, s)
				}
				if rapid.Bool().Draw(t, "failed") {
					l.Failure, l.Ended = rapid.SampledFrom([]string{"SIGKILL", "exit 1", "<&>"}).Draw(t, "failure"), at
				}
				of.Incarnations = append(of.Incarnations, l)
				if at.After(of.End) {
					of.End = at
				}
			}
		}
		for n := range rapid.IntRange(0, 20).Draw(t, "incidents") {
			from := noon.Add(moment("begins", 1_000_000))
			i := timeline.Incident{Incident: n + 1, Cause: rapid.String().Draw(t, "cause"), From: from, To: from.Add(moment("takes", 1_000_000))}
			middle := from.Add(i.To.Sub(from) / 2)
			i.Phases = []timeline.Phase{{Phase: "judge", From: from, To: middle}, {Phase: "sync", From: middle, To: i.To}}
			of.Incidents = append(of.Incidents, i)
			of.Generations = append(of.Generations, timeline.Sealed{Generation: ident.Generation(n + 1), World: 3, Time: i.To})
		}
		isPicture(t, svg(t, of))
		_, all := trace(t, of)
		got := flat(t, all)
		maps.DeleteFunc(got, func(name string, _ int64) bool { return !strings.HasPrefix(name, "worker ") })
		if !overlap && !maps.Equal(got, sums) {
			t.Errorf("the trace has %v microseconds, the timeline %v", got, sums)
		}
	})
}
