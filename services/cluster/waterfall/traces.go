package waterfall

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Trace is the start of a job or one of its incidents.
type Trace struct {
	Incident int    `json:"incident"` // 0 = the start of the job
	Title    string `json:"title"`
	Trace    string `json:"trace_id"`
	Spans    []Span `json:"spans"`
}

// Traces lists the traces of a job, the start first, without their spans. only selects the one of
// an incident, 0 = the start; below that it selects nothing.
func Traces(v events.JobView, only int) ([]Trace, error) {
	all := []Trace{{Title: "start of " + string(v.Job), Trace: tracing.TraceID(tracing.JobTrace(v.Job)), Spans: []Span{}}}
	add := func(number int, cause events.Cause, from ident.Generation, silence string) {
		title := fmt.Sprintf("#%d %s", number, view.CauseText(cause))
		if silence != "" {
			title += ", " + silence
		}
		all = append(all, Trace{
			Incident: number, Title: title,
			Trace: tracing.TraceID(tracing.IncidentTrace(v.Job, from)), Spans: []Span{},
		})
	}
	for _, i := range v.Incidents {
		add(i.Incident, i.Cause, i.From, view.SilenceText(i))
	}
	if v.OpenIncident != nil {
		add(v.OpenIncident.Incident, v.OpenIncident.Cause, v.OpenIncident.From, "")
	}
	if only < 0 {
		return all, nil
	}
	for _, s := range all {
		if s.Incident == only {
			return []Trace{s}, nil
		}
	}
	if len(all) == 1 {
		return nil, errcode.Errorf(errcode.NotFound, "%s has no incident %d: it has had none", v.Job, only)
	}
	return nil, errcode.Errorf(errcode.NotFound, "%s has no incident %d: its record has #%d to #%d", v.Job, only, all[1].Incident, all[len(all)-1].Incident)
}

// Sort adds the spans to the traces that they are of.
func Sort(all []Trace, spans []Span) {
	for _, s := range spans {
		for i := range all {
			if all[i].Trace == s.Trace {
				all[i].Spans = append(all[i].Spans, s)
			}
		}
	}
}

// Page is what a dashboard shows of the traces of a job.
type Page struct {
	Traces []Drawn `json:"traces"` // the newest incident first, the start last
	Cut    bool    `json:"cut"`    // older spans are left out
}

// Drawn is a trace in the order of a waterfall.
type Drawn struct {
	Incident int    `json:"incident"`
	Title    string `json:"title"`
	Trace    string `json:"trace_id"`
	Rows     []Row  `json:"rows"`
	Left     int    `json:"left_out"` // rows
}

// Row is one span; those that follow with a greater depth are below it.
type Row struct {
	Span
	Depth  int  `json:"depth"`
	Orphan bool `json:"orphan,omitempty"` // its parent is not stored
	// Where is the worker or the node of the span: r2 on node-b/1. Empty = it is of none.
	Where string `json:"where,omitempty"`
}

// pageRows bounds the rows of a page.
const pageRows = 3000

// NewPage puts the spans of stored messages in order. It leaves out messages that cannot be read:
// any client may write spans.
func NewPage(v events.JobView, messages [][]byte, cut bool) Page {
	all, err := Traces(v, -1)
	if err != nil {
		return Page{Traces: []Drawn{}}
	}
	for _, m := range messages {
		if spans, err := Decode(m); err == nil {
			Sort(all, spans)
		}
	}
	p := Page{Traces: []Drawn{}, Cut: cut}
	room := pageRows
	for i := len(all) - 1; i >= 0; i-- {
		d := Drawn{Incident: all[i].Incident, Title: all[i].Title, Trace: all[i].Trace, Rows: []Row{}}
		rows := Rows(all[i].Spans)
		take := min(room, len(rows))
		d.Rows = append(d.Rows, rows[:take]...)
		room, d.Left = room-take, len(rows)-take
		p.Traces = append(p.Traces, d)
	}
	return p
}
