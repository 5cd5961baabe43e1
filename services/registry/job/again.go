package job

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Again is the start of a generation's processes within an incident, under restart recovery.
type Again struct {
	Generation events.Generation `json:"generation"`
	At         time.Time         `json:"at"`
	Phases     events.Phases     `json:"phases_ms"` // from the fault to At
}

// startedAgain records that the processes of a generation run, which is all that can be seen of a program that reports no
// steps. One that has reported some is expected to do so again, and until then it is not known to train.
func (t *turn) startedAgain(b events.WorkerReady) {
	if t.View.OpenIncident == nil || b.Generation <= t.View.OpenIncident.From {
		return
	}
	p := t.phasesOf(b)
	p.Regroup, p.FirstStep = p.Regroup+p.FirstStep, 0 // to start a process is no step
	if t.View.Step == 0 {
		t.closed(events.IncidentClosed{To: b.Generation, Phases: p, Started: true}, t.now)
		return
	}
	if b.Generation == t.View.Generation {
		t.Incident.Again = &Again{Generation: b.Generation, At: t.now, Phases: p}
	}
}

// makesSteps records the first step that a process reports in a generation, under restart recovery.
func (t *turn) makesSteps(b events.WorkerReady) {
	g := b.Generation
	if t.View.OpenIncident != nil && g > t.View.OpenIncident.From {
		t.stepsAgain(g, b.Step, t.phasesOf(b))
	}
	step := b.Step
	if t.StepIn == g {
		step = max(step, t.View.Step)
	}
	t.step(g, step)
}

// heardStep ends an incident with a step that was heard of before its fact, or without one: agents of the release before
// tell only of the start.
func (t *turn) heardStep(p events.Progress) {
	i := t.Incident
	if i == nil || i.Again == nil || i.Again.Generation != p.Generation || p.Step == 0 {
		return
	}
	phases := i.Again.Phases
	phases.FirstStep = max(0, events.Milliseconds(t.now.Sub(i.Again.At)))
	t.stepsAgain(p.Generation, p.Step, phases)
	t.step(p.Generation, p.Step)
}

// stepsAgain ends the incident with a reported step. Steps that were reported before and are made again are lost; more may be,
// as not every step needs to be reported, so nothing is known of them if none is seen twice.
func (t *turn) stepsAgain(g events.Generation, step uint64, p events.Phases) {
	c := events.IncidentClosed{To: g, Phases: p}
	if last := t.View.Step; last >= step {
		lost := last - step + 1
		c.StepsLost, c.AtLeast = &lost, true
	}
	t.closed(c, t.now)
}
