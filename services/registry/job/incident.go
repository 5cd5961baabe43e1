package job

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// incidentsKept is how many closed incidents a job's document holds.
const incidentsKept = 256

// Incident is the private half of an open incident.
type Incident struct {
	Since  time.Time         `json:"since"`             // its beginning, or that of its newest attempt to regroup
	LostMS float64           `json:"lost_ms,omitempty"` // spent on attempts that broke before a good step
	Broken events.Generation `json:"broken,omitempty"`  // newest generation counted in LostMS
	Again  *Again            `json:"again,omitempty"`   // restart recovery: the processes run, and have reported no step yet
}

// broke takes in that the current generation is over: the incident opens, or the open one begins another attempt.
func (t *turn) broke(c events.Cause) {
	t.standsStill()
	t.Broken = max(t.Broken, t.View.Generation)
	i := t.Incident
	if i == nil {
		t.open(c)
		return
	}
	i.Again = nil
	if g := t.View.Generation; g > t.View.OpenIncident.From && g > i.Broken {
		i.LostMS += max(0, events.Milliseconds(t.now.Sub(i.Since)))
		i.Since, i.Broken = t.now, g
	}
}

// open begins an incident after a good generation, unless one is open: it keeps its first cause. The start of a job is
// no incident.
func (t *turn) open(c events.Cause) {
	if t.View.OpenIncident != nil || t.LastGood == 0 || t.View.State != events.JobStateRunning {
		return
	}
	t.Counted++
	t.Incident = &Incident{Since: t.now}
	t.View.OpenIncident = &events.IncidentOpened{
		Job: t.View.Job, Incident: t.Counted, From: t.LastGood, Cause: c,
		Trace: events.TraceOf(t.View.Job, t.LastGood),
	}
	t.tell(*t.View.OpenIncident)
}

// learn takes in how a worker failed whose peers were the first to notice: that is the cause, and not that they noticed.
func (t *turn) learn(c events.Cause) {
	o := t.View.OpenIncident
	if o == nil || c.Kind != events.CauseWorkerFailed || c.Place == nil || !o.Cause.Accuses(*c.Place, c.Rank) {
		return
	}
	known := *o // what was told stays as it is
	known.Cause = c
	t.View.OpenIncident = &known
}

// rather takes the failure of a worker for the cause of the open incident that another one had, which says itself that it lost a peer.
func (t *turn) rather(w *events.WorkerView, c events.Cause) {
	o := t.View.OpenIncident
	if o == nil || o.From != w.Generation || ofPeer(w) || o.Cause.Kind != events.CauseWorkerFailed || o.Cause.Place == nil {
		return
	}
	if f := t.worker(*o.Cause.Place); f == nil || f.Generation != o.From || !ofPeer(f) {
		return
	}
	known := *o
	known.Cause = c
	t.View.OpenIncident = &known
}

// close ends the incident: the generation of b makes steps.
func (t *turn) close(b events.WorkerReady, atLeast bool) {
	t.closed(events.IncidentClosed{To: b.Generation, Phases: t.phasesOf(b), StepsLost: &b.Lost, AtLeast: atLeast}, t.now)
}

// phasesOf divides the open incident, with the attempts before the generation of b.
func (t *turn) phasesOf(b events.WorkerReady) events.Phases {
	var seal Timing
	for _, s := range t.Timing {
		if s.Generation == b.Generation {
			seal = s
		}
	}
	var sinceSeal float64
	for _, g := range t.View.Generations {
		if g.Generation == b.Generation {
			sinceSeal = max(0, events.Milliseconds(t.now.Sub(g.Sealed)))
		}
	}
	p := phases(seal, b, sinceSeal)
	p.Judge += t.Incident.LostMS
	return p
}

// phases divides the time from the fault to the first good step into parts that do not overlap. Three clocks measured it:
//
//	agent        fault ----N----> first notice
//	rendezvous                    first notice ------J------> seal
//	rank 0                        notice --A--> rejoins --R--> communicator --S--> newest commit --F--> first good step
//
// The survivors and the rendezvous hear of a fault within the same milliseconds, so both lines begin at the same moment.
// Rejoining (R) is waiting for the seal and then connecting; the wait is the judge's:
//
//	notice N, abort A, judge max(0, J-A), regroup max(0, R-max(0, J-A)), sync S, first step F
//
// No communicator stands before its seal (A+R >= J), so the sum is N+A+R+S+F: the length of the whole. If rank 0 is no
// survivor it has no notice, and may have been started within the incident: then A=0, judge J, and the time to regroup is
// what passed here between the seal and this fact, less S and F.
func phases(seal Timing, b events.WorkerReady, sinceSeal float64) events.Phases {
	p := events.Phases{Notice: seal.NoticeMS, Sync: b.SyncMS, FirstStep: b.StepMS}
	if !b.Survivor {
		p.Judge = seal.JudgeMS
		p.Regroup = max(0, sinceSeal-b.SyncMS-b.StepMS)
		return p
	}
	p.Abort = b.AbortMS
	p.Judge = max(0, seal.JudgeMS-b.AbortMS)
	p.Regroup = max(0, b.RejoinMS-p.Judge)
	return p
}

// giveUp ends an open incident because the job ends. All of its time counts as the judge's. Processes that ran again, and did not
// fail, did so from their start.
func (t *turn) giveUp() {
	if t.View.OpenIncident == nil {
		return
	}
	if a := t.Incident.Again; a != nil && a.Generation > t.Broken && t.View.State != events.JobStateFailed {
		t.closed(events.IncidentClosed{To: a.Generation, Phases: a.Phases, Started: true}, a.At)
		return
	}
	lasted := t.Incident.LostMS + max(0, events.Milliseconds(t.now.Sub(t.Incident.Since)))
	c := events.IncidentClosed{Phases: events.Phases{Judge: lasted}}
	if t.inProcess() && t.View.OpenIncident.Cause.Kind.Planned() {
		c.StepsLost = new(uint64) // it trained on until its end
	}
	t.closed(c, t.now)
}

// closed completes what is said about the end of the open incident, and when it was, and tells it.
func (t *turn) closed(c events.IncidentClosed, at time.Time) {
	o := t.View.OpenIncident
	c.Job, c.Incident, c.From, c.Cause = o.Job, o.Incident, o.From, o.Cause
	c.TotalMS, c.TraceID = c.Phases.Sum(), events.TraceID(o.Trace)
	t.View.Incidents = append(t.View.Incidents, c)
	if over := len(t.View.Incidents) - incidentsKept; over > 0 {
		t.View.Incidents = slices.Clone(t.View.Incidents[over:])
	}
	t.tell(c)
	t.incidentSpan(c, o.Trace, at)
	t.View.OpenIncident, t.Incident = nil, nil
}
