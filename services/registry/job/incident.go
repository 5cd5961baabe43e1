package job

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
)

// minSilence is the least silence before an incident that is reported, in milliseconds: steps are
// heard some times a second.
const minSilence = 1000

// incidentsKept is how many closed incidents a job's document holds.
const incidentsKept = 256

// Incident is the private part of an open incident.
type Incident struct {
	Since   time.Time        `json:"since"`             // its beginning, or that of its newest attempt to regroup
	LostMS  float64          `json:"lost_ms,omitempty"` // spent on attempts that broke before a good step
	Broken  ident.Generation `json:"broken,omitempty"`  // newest generation counted in LostMS
	Silence float64          `json:"silence,omitempty"` // ms since the last step that was observed, at its beginning
	Unknown bool             `json:"unknown,omitempty"` // nobody knows: no step was reported, and an agent was found to have ended
	Restart *ProcessRestart  `json:"restart,omitempty"` // restart recovery: the processes run, and have reported no step yet
}

// generationBroken applies that the current generation is over: it opens an incident, or begins
// another attempt of the open one.
func (t *transition) generationBroken(c events.Cause) {
	t.addTimeWithoutStep()
	t.Broken = max(t.Broken, t.View.Generation)
	i := t.Incident
	if i == nil {
		t.openIncident(c)
		return
	}
	i.Restart = nil
	if g := t.View.Generation; g > t.View.OpenIncident.From && g > i.Broken {
		i.LostMS += max(0, events.Milliseconds(t.now.Sub(i.Since)))
		i.Since, i.Broken = t.now, g
	}
}

// openIncident opens an incident after a good generation, unless one is open: that one keeps its
// first cause. The start of a job is no incident.
func (t *transition) openIncident(c events.Cause) {
	if t.View.OpenIncident != nil || t.LastGood == 0 || t.View.State != events.JobStateRunning {
		return
	}
	t.IncidentCount++
	t.catchUp()
	t.Incident = &Incident{Since: t.now}
	if at := t.View.StepAt; !at.IsZero() && !c.Kind.Planned() {
		t.Incident.Silence = max(0, events.Milliseconds(t.now.Sub(at)))
	} else { // nothing but the node was observed
		t.Incident.Silence = t.nodeSilence
		t.Incident.Unknown = t.agentEnded && t.nodeSilence == 0 && !c.Kind.Planned()
	}
	t.View.OpenIncident = &events.IncidentOpened{
		Job: t.View.Job, Incident: t.IncidentCount, From: t.LastGood, Cause: c,
		Trace: tracing.IncidentTrace(t.View.Job, t.LastGood),
	}
	t.publish(*t.View.OpenIncident)
}

// correctSilence applies that discovery says for how long a lost node had been silent, after its
// processes' exits have opened the incident.
func (t *transition) correctSilence(node ident.NodeID) {
	open := t.View.OpenIncident
	if open == nil || open.Cause.Place == nil || open.Cause.Place.Node != node {
		return // another one began it
	}
	if i := t.Incident; i != nil && i.Unknown && t.nodeSilence > 0 {
		i.Unknown, i.Silence = false, max(0, t.nodeSilence-events.Milliseconds(t.now.Sub(i.Since))-i.LostMS)
	}
}

// explainCause gives an incident the cause that the worker's exit shows. Its agent may have
// reported before that the worker was dying, so the next generation and the end of the incident may
// precede the exit. What was published stays unchanged.
func (t *transition) explainCause(c events.Cause, of ident.Generation) {
	t.refineCause(c)
	explains := func(known events.Cause) bool {
		return known.Accuses(*c.Place, c.Rank) || known.Blames(*c.Place, c.Rank)
	}
	if o := t.View.OpenIncident; o != nil && o.From == of && explains(o.Cause) {
		t.replaceCause(c)
	}
	if n := len(t.View.Incidents); n > 0 {
		if i := &t.View.Incidents[n-1]; i.From == of && explains(i.Cause) {
			i.Cause = c
		}
	}
	if g := t.generation(of + 1); g != nil && explains(g.Cause) {
		g.Cause = c
	}
}

// refineCause replaces a cause reported by peers with the actual failure of the worker.
func (t *transition) refineCause(c events.Cause) {
	o := t.View.OpenIncident
	if o == nil || !c.Kind.WorkerFailed() || c.Place == nil || !o.Cause.Accuses(*c.Place, c.Rank) {
		return
	}
	t.replaceCause(c)
}

// replaceCause changes the cause of the open incident. The one that was published stays unchanged.
func (t *transition) replaceCause(c events.Cause) {
	known := *t.View.OpenIncident
	known.Cause = c
	t.View.OpenIncident = &known
}

// preferCause makes the failure of a worker the cause of the open incident if the present cause is
// a worker that reports a lost peer.
func (t *transition) preferCause(w *tables.WorkerView, c events.Cause) {
	o := t.View.OpenIncident
	if o == nil || o.From != w.Generation || lostPeer(w) || !o.Cause.Kind.WorkerFailed() || o.Cause.Place == nil {
		return
	}
	if f := t.worker(*o.Cause.Place); f == nil || f.Generation != o.From || !lostPeer(f) {
		return
	}
	t.replaceCause(c)
}

// closeIncident closes the incident: the generation of b makes steps.
func (t *transition) closeIncident(b events.WorkerReady, atLeast bool) {
	t.finishIncident(events.IncidentClosed{To: b.Generation, Phases: t.phasesOf(b), StepsLost: &b.Lost, AtLeast: atLeast}, t.now)
}

// phasesOf returns the phases of the open incident, with the attempts before b's generation.
func (t *transition) phasesOf(b events.WorkerReady) events.Phases {
	var seal Timing
	for _, s := range t.Timing {
		if s.Generation == b.Generation {
			seal = s
		}
	}
	var sinceSeal float64
	if g := t.generation(b.Generation); g != nil {
		sinceSeal = max(0, events.Milliseconds(t.now.Sub(g.Sealed)))
	}
	p := phases(seal, b, sinceSeal)
	p.Judge += t.Incident.LostMS
	for _, s := range t.Timing { // those of attempts that broke are in LostMS
		if s.Generation > t.View.OpenIncident.From && s.Generation <= b.Generation {
			p.BackOff += s.BackOffMS
		}
	}
	p.BackOff = min(p.Judge, p.BackOff)
	p.Judge -= p.BackOff
	return p
}

// phases divides the time from the fault to the first good step into parts that do not overlap. It
// is measured by three clocks:
//
//	agent        fault ----N----> first notice
//	rendezvous                    first notice ------J------> seal
//	rank 0                        notice --A--> rejoins --R--> communicator --S--> newest commit --F--> first good step
//
// The survivors and the rendezvous notice a fault within milliseconds of each other, so both lines
// begin at the same moment. Rejoining (R) consists of waiting for the seal, which counts as the
// rendezvous' time (Phases.Judge), and of connecting:
//
//	notice N, abort A, judge max(0, J-A), regroup max(0, R-max(0, J-A)), sync S, first step F
//
// No communicator is connected before its seal (A+R >= J), so the sum is N+A+R+S+F, the whole
// duration. If rank 0 is no survivor it has no notice, and may have been started within the
// incident: then A=0, judge J, and regroup is the time between the seal and this fact on the
// registry's clock, less S and F.
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

// abortIncident closes an open incident because the job ends. All of its time counts as decision
// time. Processes that ran again without failing count from their start.
func (t *transition) abortIncident() {
	if t.View.OpenIncident == nil {
		return
	}
	if a := t.Incident.Restart; a != nil && a.Generation > t.Broken && t.View.State != events.JobStateFailed {
		t.finishIncident(events.IncidentClosed{To: a.Generation, Phases: a.Phases, Started: true}, a.At)
		return
	}
	lasted := t.Incident.LostMS + max(0, events.Milliseconds(t.now.Sub(t.Incident.Since)))
	c := events.IncidentClosed{Phases: events.Phases{Judge: lasted}}
	if t.inProcess() && t.View.OpenIncident.Cause.Kind.Planned() {
		c.StepsLost = new(uint64) // it trained on until its end
	}
	t.finishIncident(c, t.now)
}

// finishIncident completes the fact of the incident's end, with its time, and publishes it.
func (t *transition) finishIncident(c events.IncidentClosed, at time.Time) {
	o := t.View.OpenIncident
	c.Job, c.Incident, c.From, c.Cause = o.Job, o.Incident, o.From, o.Cause
	c.TotalMS, c.TraceID = c.Phases.Sum(), tracing.TraceID(o.Trace)
	if silence := t.Incident.Silence - c.Phases.Notice; silence >= minSilence {
		c.SilenceMS = silence
	}
	c.SilenceUnknown = t.Incident.Unknown
	t.View.Incidents = newest(append(t.View.Incidents, c), incidentsKept)
	t.publish(c)
	t.incidentSpan(c, o.Trace, at)
	t.View.OpenIncident, t.Incident = nil, nil
}

// ProcessRestart is the start of a generation's processes within an incident (restart recovery).
type ProcessRestart struct {
	Generation ident.Generation `json:"generation"`
	At         time.Time        `json:"at"`
	Phases     events.Phases    `json:"phases_ms"` // from the fault to At
}

// processesStarted records that the processes of a generation run, which is all that is visible of
// a program that reports no steps. A program that has reported steps before is expected to do so
// again, and counts as training only then.
func (t *transition) processesStarted(b events.WorkerReady) {
	if t.View.OpenIncident == nil || b.Generation <= t.View.OpenIncident.From {
		return
	}
	p := t.phasesOf(b)
	p.Regroup, p.FirstStep = p.Regroup+p.FirstStep, 0 // starting a process is no step
	if t.View.Step == 0 {
		t.finishIncident(events.IncidentClosed{To: b.Generation, Phases: p, Started: true}, t.now)
		return
	}
	if b.Generation == t.View.Generation {
		t.Incident.Restart = &ProcessRestart{Generation: b.Generation, At: t.now, Phases: p}
	}
}

// firstStep records the first step that a process reports in a generation under restart recovery.
func (t *transition) firstStep(b events.WorkerReady) {
	g := b.Generation
	if t.View.OpenIncident != nil && g > t.View.OpenIncident.From {
		t.closeWithStep(g, b.Step, t.phasesOf(b))
	}
	step := b.Step
	if t.StepGeneration == g {
		step = max(step, t.View.Step)
	}
	t.recordStep(g, step)
}

// closeWithStep closes the incident with a reported step. Steps that were reported before and are
// made again are lost. Programs need not report every step, so the number is unknown if none is
// seen twice.
func (t *transition) closeWithStep(g ident.Generation, step uint64, p events.Phases) {
	c := events.IncidentClosed{To: g, Phases: p}
	if last := t.View.Step; last >= step {
		lost := last - step + 1
		c.StepsLost, c.AtLeast = &lost, true
	}
	t.finishIncident(c, t.now)
}
