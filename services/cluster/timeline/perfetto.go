package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// traceEvent is an event of the Trace Event Format. Times are microseconds since the start of the
// timeline.
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"` // X = a slice, i = an instant, M = a name
	TS       int64          `json:"ts"`
	Duration *int64         `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Scope    string         `json:"s,omitempty"` // of an instant: p = its process, t = its thread
	Args     map[string]any `json:"args,omitempty"`
}

// The process of what is of the whole job, and its threads. Those of nodes follow; their threads
// are the slots, from 1.
const (
	jobProcess        = 1
	generationsThread = 1
	incidentsThread   = 2
	phasesThread      = 3
)

// traceDoing is the name of a slice: what nobody has observed is no activity.
func traceDoing(d Doing) string {
	if d == Unobserved {
		return "unknown"
	}
	return string(d)
}

type traceWriter struct {
	start  time.Time
	events []traceEvent
}

// Perfetto writes a timeline as trace events (JSON Object Format): a process for each node with a
// thread for each slot, and one for the job with its generations, incidents and their phases.
func Perfetto(w io.Writer, t *Timeline) error {
	p := traceWriter{start: t.Start}
	p.name(jobProcess, 0, "process_name", "job "+string(t.Job))
	p.sort(jobProcess, 0, "process_sort_index", 0)
	for thread, name := range []string{generationsThread: "generations", incidentsThread: "incidents", phasesThread: "phases of incidents"} {
		if thread > 0 {
			p.name(jobProcess, thread, "thread_name", name)
			p.sort(jobProcess, thread, "thread_sort_index", thread)
		}
	}
	for _, g := range t.Generations {
		p.instant(fmt.Sprintf("%s (world %d)", g.Generation, g.World), "generation", g.Time, jobProcess, generationsThread, "p", map[string]any{"generation": g.Generation, "world": g.World})
	}
	for _, i := range incidentsOf(t) {
		args := map[string]any{"incident": i.Incident, "cause": i.Cause}
		if i.Planned {
			args["planned"] = true
		}
		if i.Open {
			args["open"] = true
		}
		p.slice(fmt.Sprintf("#%d %s", i.Incident, i.Cause), "incident", i.From, i.To, jobProcess, incidentsThread, args)
		for _, f := range i.Phases {
			p.slice(f.Phase, "phase", f.From, f.To, jobProcess, phasesThread, map[string]any{"incident": i.Incident})
		}
	}
	p.rows(rowsOf(t))
	return p.write(w, t)
}

func (p *traceWriter) rows(all []row) {
	process := jobProcess
	for i, r := range all {
		if i == 0 || r.place.Node != all[i-1].place.Node {
			process++
			p.name(process, 0, "process_name", "node "+string(r.place.Node))
			p.sort(process, 0, "process_sort_index", process)
		}
		thread := int(r.place.Slot) + 1
		name := fmt.Sprintf("slot %d", r.place.Slot)
		if r.rank >= 0 {
			name += fmt.Sprintf(" (r%d)", r.rank)
		}
		p.name(process, thread, "thread_name", name)
		p.sort(process, thread, "thread_sort_index", thread)
		for _, s := range r.stretches {
			p.slice(traceDoing(s.Doing), "worker", s.From, s.To, process, thread, map[string]any{"rank": s.rank, "attempt": s.attempt})
		}
		for _, f := range r.failures {
			p.instant(f.what, "failure", f.at, process, thread, "t", map[string]any{"rank": f.rank, "attempt": f.attempt})
		}
	}
}

func (p *traceWriter) at(t time.Time) int64 { return max(0, t.Sub(p.start).Microseconds()) }

func (p *traceWriter) slice(name, category string, from, to time.Time, process, thread int, args map[string]any) {
	took := p.at(to) - p.at(from)
	p.events = append(p.events, traceEvent{Name: view.OneLine(name), Category: category, Phase: "X", TS: p.at(from), Duration: &took, Process: process, Thread: thread, Args: args})
}

func (p *traceWriter) instant(name, category string, at time.Time, process, thread int, scope string, args map[string]any) {
	p.events = append(p.events, traceEvent{Name: view.OneLine(name), Category: category, Phase: "i", TS: p.at(at), Process: process, Thread: thread, Scope: scope, Args: args})
}

func (p *traceWriter) name(process, thread int, what, name string) {
	p.events = append(p.events, traceEvent{Name: what, Phase: "M", Process: process, Thread: thread, Args: map[string]any{"name": name}})
}

func (p *traceWriter) sort(process, thread int, what string, index int) {
	p.events = append(p.events, traceEvent{Name: what, Phase: "M", Process: process, Thread: thread, Args: map[string]any{"sort_index": index}})
}

// write writes the document, one event a line.
func (p *traceWriter) write(w io.Writer, t *Timeline) error {
	var b bytes.Buffer
	about, err := json.Marshal(map[string]any{"job": t.Job, "start": t.Start, "end": t.End})
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[\n", about)
	for i, e := range p.events {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		b.Write(line)
		if i+1 < len(p.events) {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	_, err = w.Write(escape.JSON(b.Bytes()))
	return err
}
