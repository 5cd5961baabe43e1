package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// Seen is the services' views of a job. Round and Placement are zero until their services have
// stored something.
type Seen struct {
	Job       events.JobView
	Round     events.RoundView
	Placement events.PlacementView
	Pool      events.PoolView // the pool of Placement
	Nodes     []events.NodeView
	Silent    []string // services of which no replica answers
	// ServerEnded says that their process has ended, on this machine.
	ServerEnded bool
	Now         time.Time
}

// Explanation is the answer, for people and for programs.
type Explanation struct {
	Job        ident.JobID      `json:"job"`
	State      events.JobState  `json:"state"`
	Sentence   string           `json:"sentence"`
	Parts      []Part           `json:"parts"` // the sentence, with its times instead of their ages
	Generation ident.Generation `json:"generation"`
	Training   int              `json:"training"`            // members of the newest generation, until the job ends
	Joined     int              `json:"joined"`              // members that wait for the next generation
	Workers    spec.Workers     `json:"workers"`             // wanted
	Places     int              `json:"places"`              // assigned by the scheduler
	Missing    []ident.Place    `json:"missing,omitempty"`   // places whose workers the next generation waits for
	Warming    []ident.Place    `json:"warming,omitempty"`   // slots whose workers are admitted at the next commit, as many as make a multiple
	Spares     []ident.Place    `json:"spares,omitempty"`    // slots whose workers wait: with them there would be no multiple that it trains with
	Until      time.Time        `json:"until,omitzero"`      // the deadline of the wait
	Failures   int              `json:"failures"`            // counted within the window
	Allowed    int              `json:"failures_allowed"`    // of them
	Hindrance  string           `json:"hindrance,omitempty"` // why it has fewer slots than it wants, by the scheduler
	Silent     []string         `json:"silent,omitempty"`    // services of which no replica answers: their views may be out of date
	StepAt     time.Time        `json:"step_at,omitzero"`    // when the newest step was observed
	// Before the incident after which its generation began: for how long nobody had observed a
	// step, or that this is unknown.
	SilenceMS      float64 `json:"silence_ms,omitempty"`
	SilenceUnknown bool    `json:"silence_unknown,omitempty"`
}

// Explain describes in one sentence with numbers what a job does, and what it waits for.
func Explain(s Seen) Explanation {
	v := s.Job
	e := Explanation{
		Job: v.Job, State: v.State, Generation: v.Generation, Workers: v.Spec.Workers, Places: len(s.Placement.Places),
		Failures: v.FailuresWithin(s.Now), Hindrance: s.waiting(), Silent: s.Silent,
		StepAt: v.StepAt,
	}
	if i := s.broughtAbout(); i != nil {
		e.SilenceMS, e.SilenceUnknown = i.SilenceMS, i.SilenceUnknown
	}
	if g := s.Round.Rendezvous; g != nil && v.Spec.SelfRegistered() {
		e.Places = len(g.Placed) * v.Spec.Rendezvous.WorkersPerNode
	}
	if v.Spec.Failures.Max != nil {
		e.Allowed = *v.Spec.Failures.Max
	}
	if !v.State.Terminal() {
		e.Training = len(s.Round.Members)
		e.Joined, e.Until = len(s.Round.Joined), s.Round.Until
		e.Missing = s.missing()
		e.Warming, e.Spares, _ = s.newcomers()
	}
	parts := []string{s.head(e)}
	parts = append(parts, s.remarks(e)...)
	e.Parts = partsOf(fmt.Sprintf("%s %s.", v.Job, strings.Join(parts, "; ")))
	e.Sentence = textOf(e.Parts, s.Now)
	return e
}

func (s Seen) head(e Explanation) string {
	v := s.Job
	switch {
	case v.State.Terminal():
		return ended(v)
	case v.State == events.JobStateStopping:
		return fmt.Sprintf("is stopping (%s): %s still running", v.Reason, english.Plural(alive(v), "worker"))
	case v.State == events.JobStateFinishing:
		done, left := finishing(v)
		return fmt.Sprintf("has completed the training: %s done, %d still running", english.Plural(done, "worker"), left)
	case s.awaitedNodes() != "":
		return s.awaitedNodes()
	case e.Places == 0 && s.Round.Generation == 0 && s.silent(events.ServiceScheduler):
		text := fmt.Sprintf("has no slots since it was submitted %s ago: no scheduler answers, and until one does it gets none", since(v.Submitted))
		if e.Hindrance != "" {
			text += "; the last one said that it " + e.Hindrance
		}
		return text
	case e.Places == 0 && s.Round.Generation == 0:
		return fmt.Sprintf("has waited for slots for %s: %s", since(v.Submitted), s.hindrance(e))
	case e.Places == 0 && !v.Spec.SelfRegistered():
		return fmt.Sprintf("has no slots any more after %s: it needs %d%s, and trains again when it gets them", CauseText(s.lastCause()), max(1, e.Workers.Min), v.Spec.GPU.With())
	case s.Round.Proposed > 0:
		return s.regroups(e)
	case e.Training == 0 && s.silent(events.ServiceRendezvous):
		return fmt.Sprintf("has %s, and no rendezvous answers that could bring its workers together", english.Plural(e.Places, "place"))
	case e.Training == 0:
		return fmt.Sprintf("has %s and waits for the rendezvous to open", english.Plural(e.Places, "place"))
	}
	verb := "trains"
	silent := v.Spec.Recovery == spec.RecoveryRestart && v.OpenIncident != nil
	if v.Spec.Recovery == spec.RecoveryRestart && (silent || v.Step == 0) {
		verb = "runs" // only its processes are known to run
	}
	text := fmt.Sprintf("%s as %s with %s", verb, e.Generation, TrainingText(e.Training, e.Workers))
	if v.Step > 0 {
		text += fmt.Sprintf(" (step %d%s)", v.Step, s.observed(", observed %s ago"))
	}
	if silent {
		text += ", and has reported no step since " + CauseText(v.OpenIncident.Cause)
	}
	return text
}

// waiting describes why the job has fewer slots than it wants. For queued jobs the scheduler gives
// only that reason, because the obstacle is the same for all.
func (s Seen) waiting() string {
	p, at := s.Pool, slices.Index(s.Pool.Queue, s.Job.Job)
	q, known := queueOf(p, s.Job.Spec.GPU)
	if at < 1 || !known || q.Head == s.Job.Job {
		return s.Placement.Waiting
	}
	least := s.Placement.Workers.Min
	text := fmt.Sprintf("needs %s%s", english.Plural(least, "slot"), s.Job.Spec.GPU.With())
	if least > q.MaxSlots {
		return text + ", more than there are: " + q.Capacity
	}
	text += fmt.Sprintf(", is number %d of %d in the queue", at+1, len(p.Queue))
	if q.Head != "" {
		text += fmt.Sprintf(" behind %s, which needs %d", q.Head, p.Jobs[q.Head].Workers.Min)
	}
	return text + "; " + q.Capacity
}

// Queued returns for what a job waits that "is queued": its number in the queue, and which job is
// before all others. The pool may be older than the job's reason, which is returned then.
func Queued(v events.JobView, reason string, pool events.PoolView) string {
	if !strings.HasSuffix(reason, ", is queued") || !slices.Contains(pool.Queue, v.Job) {
		return reason
	}
	return Seen{Job: v, Pool: pool, Placement: pool.Jobs[v.Job]}.waiting()
}

// queueOf returns what jobs wait for that ask for a GPU; known = the view says so.
func queueOf(p events.PoolView, g *spec.GPU) (q events.GPUQueue, known bool) {
	if g == nil {
		return events.GPUQueue{Head: p.Head, Capacity: p.Capacity, MaxSlots: p.MaxSlots}, true
	}
	i := slices.IndexFunc(p.GPUQueues, func(q events.GPUQueue) bool { return q.GPU == *g })
	if i < 0 {
		return q, false
	}
	return p.GPUQueues[i], true
}

func (s Seen) hindrance(e Explanation) string {
	if e.Hindrance != "" {
		return e.Hindrance
	}
	return fmt.Sprintf("it needs %s%s, and no scheduler has looked at it yet", english.Plural(max(1, e.Workers.Min), "slot"), s.Job.Spec.GPU.With())
}

func (s Seen) regroups(e Explanation) string {
	r := s.Round
	verb := "agrees on its first generation"
	if r.Generation > 0 {
		verb = fmt.Sprintf("regroups from %s to %s after %s", r.Generation, r.Proposed, CauseText(r.Cause))
	}
	text := fmt.Sprintf("%s: %d of %s joined, at least %d needed", verb, e.Joined, english.Plural(len(r.Expected), "worker"), e.Workers.Min)
	text += s.observed("; no step was observed for %s")
	if len(e.Missing) > 0 {
		text += "; missing: " + s.placesText(e.Missing)
	}
	if spares := SparesText(s.Job.Job, s.Nodes); r.Generation == 0 && s.Job.Spec.Processes.AwaitSpares && spares != "" {
		text += "; it begins when its spares are ready: " + spares
	}
	switch {
	case len(r.EndingNodes) > 0 && e.Until.After(s.Now):
		text += fmt.Sprintf("; it waits for at most %s until the processes of %s have ended on %s", until(e.Until), r.Generation, nodesText(r.EndingNodes))
	case r.State == events.RoundStateSettling && len(e.Missing) == 0 && e.Until.After(s.Now):
		text += fmt.Sprintf("; it tries again in %s, because generations are lost without progress", until(e.Until))
	case r.State == events.RoundStateSettling && e.Until.After(s.Now):
		text += "; the last call ends in " + until(e.Until)
	case r.Generation == 0 && len(e.Missing) > 0:
		if left := s.Job.Submitted.Add(s.Job.Spec.Elastic.StartWithin.D()).Sub(s.Now); left > 0 && s.Job.Spec.Elastic.StartWithin > 0 {
			text += "; it may take at most " + s.Job.Spec.Elastic.StartWithin.D().String()
		}
	}
	return text
}

// remarks are further remarks: workers that prefetch the state, missing slots, counted failures,
// suspected nodes.
func (s Seen) remarks(e Explanation) []string {
	if e.State.Terminal() {
		return nil
	}
	var out []string
	if n := s.Round.NoProgress; n >= spec.FreeRetries {
		out = append(out, fmt.Sprintf("%s in a row were lost without progress", english.Plural(n, "generation")))
	}
	if i := s.broughtAbout(); i != nil && SilenceText(*i) != "" {
		out = append(out, fmt.Sprintf("%s came after %s, and %s", i.To, CauseText(i.Cause), SilenceText(*i)))
	}
	if s.Round.Proposed == 0 {
		out = append(out, s.newcomersText(e)...)
	}
	out = append(out, s.links()...)
	out = append(out, s.absent(e)...)
	if (e.Places > 0 || s.Round.Generation > 0) && e.Hindrance != "" {
		out = append(out, "it "+e.Hindrance)
	}
	if e.Failures > 0 {
		out = append(out, fmt.Sprintf("%d of %s within %s", e.Failures, english.Plural(e.Allowed, "failure"), s.Job.Spec.Failures.Per.D()))
	}
	return append(append(out, s.standby()...), s.doubts()...)
}
