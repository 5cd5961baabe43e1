package gateway

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// Overview is what a person looks at first.
type Overview struct {
	Jobs      map[events.JobState]int `json:"jobs"`
	Slots     Slots                   `json:"slots"`
	Queue     int                     `json:"queue"`     // jobs that wait for slots
	Goodput   *float64                `json:"goodput"`   // mean of the running jobs of which it is known; null = of none
	Attention []Attention             `json:"attention"` // the most urgent first
	Incidents []RecentIncident        `json:"incidents"` // the newest first
	Strips    []Strip                 `json:"strips"`    // jobs that go on, then those that ended last
	Nodes     []Capacity              `json:"nodes"`     // by name
}

// Attention is something that a person should look at.
type Attention struct {
	Severity string       `json:"severity"` // error, warning or notice
	Text     string       `json:"text"`
	Job      ident.JobID  `json:"job,omitempty"`
	Node     ident.NodeID `json:"node,omitempty"`
	Since    time.Time    `json:"since,omitzero"`
}

// Capacity is what a node has, and what is used of it.
type Capacity struct {
	Node   ident.NodeID     `json:"node"`
	State  events.NodeState `json:"state"`
	Slots  int              `json:"slots"`
	Used   int              `json:"used"`
	Usable int              `json:"usable"` // that may get new work
	GPUs   int              `json:"gpus,omitempty"`
}

// RecentIncident is an incident of a job. Of an open one only the cause is known.
type RecentIncident struct {
	Job  ident.JobID           `json:"job"`
	Time time.Time             `json:"time,omitzero"` // when the generation after it was sealed
	Open bool                  `json:"open"`
	What events.IncidentClosed `json:"incident"`
}

// System describes the control plane.
type System struct {
	Version   string            `json:"version"`
	Go        string            `json:"go"`
	Connected bool              `json:"connected"`
	Ready     string            `json:"ready"` // ok, or what is missing
	Services  []Service         `json:"services"`
	Facts     uint64            `json:"facts"`   // sequence of the newest fact
	Streams   int               `json:"streams"` // open ones of this gateway
	Now       time.Time         `json:"now"`
	Counts    map[string]uint64 `json:"counts"` // facts by type since this gateway began
	Brokers   brokers.Report    `json:"brokers"`
}

// Service is one service of the control plane.
type Service struct {
	Name    string `json:"name"`
	Answers bool   `json:"answers"`
}

const (
	recentIncidents = 20             // of the overview
	recentFailed    = 24 * time.Hour // failed jobs need attention for so long
)

func (g *Gateway) overview(w http.ResponseWriter, r *http.Request) error {
	now := g.Now()
	jobs := g.feed.Jobs()
	o := Overview{Jobs: map[events.JobState]int{}, Slots: g.slots(), Queue: len(g.feed.Pool().Queue), Attention: []Attention{}, Incidents: []RecentIncident{}, Nodes: []Capacity{}}
	for _, s := range g.feed.Silent(r.Context()) {
		o.Attention = append(o.Attention, Attention{Severity: "error", Text: "no " + s + " answers: start one with regroup serve " + s})
	}
	for _, f := range g.feed.Brokers().Findings {
		o.Attention = append(o.Attention, Attention{Severity: f.Severity, Text: f.Text, Since: f.Since})
	}
	var sum float64
	running := 0
	for _, v := range jobs {
		o.Jobs[v.State]++
		if goodput, _ := view.Goodput(v, now); goodput != nil && !v.State.Terminal() {
			sum += *goodput
			running++
		}
		o.Attention = append(o.Attention, attention(v, now)...)
		o.Incidents = append(o.Incidents, incidents(v)...)
	}
	if running > 0 {
		mean := sum / float64(running)
		o.Goodput = &mean
	}
	for _, n := range g.feed.Nodes() {
		o.Attention = append(o.Attention, nodeAttention(n, now)...)
	}
	rank := map[string]int{"error": 0, "warning": 1, "notice": 2}
	slices.SortStableFunc(o.Attention, func(a, b Attention) int { return rank[a.Severity] - rank[b.Severity] })
	slices.SortStableFunc(o.Incidents, func(a, b RecentIncident) int {
		if a.Open != b.Open {
			if a.Open {
				return -1
			}
			return 1
		}
		return b.Time.Compare(a.Time)
	})
	o.Strips = g.stripsOf(jobs, now)
	for _, n := range g.nodes() {
		if n.State != events.NodeStateLeft {
			o.Nodes = append(o.Nodes, Capacity{n.Node, n.State, n.Slots, n.Used, n.Usable, len(n.GPUs)})
		}
	}
	o.Incidents = o.Incidents[:min(len(o.Incidents), recentIncidents)]
	return answer(w, http.StatusOK, o)
}

func attention(v events.JobView, now time.Time) []Attention {
	of := func(severity, text string, since time.Time) []Attention {
		return []Attention{{Severity: severity, Text: text, Job: v.Job, Since: since}}
	}
	switch {
	case v.State == events.JobStateFailed && now.Sub(v.Ended) < recentFailed:
		return of("error", "failed: "+v.Reason, v.Ended)
	case v.State == events.JobStateWaiting:
		reason := v.Reason
		if reason == "" {
			reason = "it has no slots yet, or its workers start"
		}
		return of("notice", "waits: "+reason, v.Submitted)
	case v.OpenIncident != nil && !v.OpenIncident.Cause.Kind.Planned():
		return of("warning", "recovers: "+v.OpenIncident.Cause.Detail, time.Time{})
	case v.Spec.Failures.Max != nil && !v.State.Terminal() && 2*v.FailuresWithin(now) > *v.Spec.Failures.Max:
		return of("warning", fmt.Sprintf("has used up %d of its %s", v.FailuresWithin(now), english.Plural(*v.Spec.Failures.Max, "failure")), time.Time{})
	}
	return nil
}

func nodeAttention(n events.NodeView, now time.Time) (all []Attention) {
	add := func(severity, text string, since time.Time) {
		all = append(all, Attention{Severity: severity, Text: text, Node: n.Node, Since: since})
	}
	switch {
	case n.State == events.NodeStateLost && now.Sub(n.Since) < recentFailed:
		add("error", "lost: "+n.Reason, n.Since)
	case n.State == events.NodeStateSuspected:
		add("warning", "suspected: "+n.Reason, n.Since)
	case n.Draining:
		add("notice", "drains", n.Since)
	}
	if q := n.Quarantine; q != nil {
		add("warning", "quarantined: "+q.Reason, q.Since)
	}
	for _, q := range n.QuarantinedSlots {
		add("warning", fmt.Sprintf("slot %d is quarantined: %s", q.Slot, q.Reason), q.Since)
	}
	return all
}

// incidents returns the unplanned incidents of a job.
func incidents(v events.JobView) (all []RecentIncident) {
	sealed := map[ident.Generation]time.Time{}
	for _, g := range v.Generations {
		sealed[g.Generation] = g.Sealed
	}
	for _, i := range v.Incidents {
		if !i.Cause.Kind.Planned() {
			at := sealed[i.To]
			if at.IsZero() {
				at = v.Ended
			}
			all = append(all, RecentIncident{Job: v.Job, Time: at, What: i})
		}
	}
	if o := v.OpenIncident; o != nil && !o.Cause.Kind.Planned() {
		all = append(all, RecentIncident{Job: v.Job, Open: true, What: events.IncidentClosed{Job: v.Job, Incident: o.Incident, From: o.From, Cause: o.Cause}})
	}
	return all
}

func (g *Gateway) system(w http.ResponseWriter, r *http.Request) error {
	counts, err := g.metrics.counts()
	if err != nil {
		return err
	}
	s := System{
		Version: g.Version, Go: runtime.Version(), Connected: g.feed.Connected(), Ready: "ok",
		Facts: g.feed.Facts.Last(), Streams: g.streams.open(), Now: g.Now(), Counts: counts,
		Brokers: g.feed.Brokers(),
	}
	if err := g.feed.Ready(); err != nil {
		s.Ready = err.Error()
	}
	silent := g.feed.Silent(r.Context())
	for _, name := range events.ServiceNames() {
		s.Services = append(s.Services, Service{name, !slices.Contains(silent, name)})
	}
	return answer(w, http.StatusOK, s)
}

func (g *Gateway) healthy(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", mediaText)
	_, _ = fmt.Fprintln(w, "ok") // the client has gone
	return nil
}

func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) error {
	if err := g.feed.Ready(); err != nil {
		return err
	}
	return g.healthy(w, r)
}
