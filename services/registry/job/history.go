package job

import (
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
)

// Limits of a job's history in its document.
const (
	generationsKept = 256
	membersKept     = 4096 // members in the whole history; older and larger generations keep only their figures
	timingsKept     = 8
	spareWorkers    = 64 // workers kept over twice the wanted number
)

func (t *transition) record(b events.RoundSealed) {
	if b.NoticeMS+b.JudgeMS > 0 { // otherwise it was made from the rendezvous' view, and the fact itself may still arrive
		t.Timing = slices.DeleteFunc(t.Timing, func(s Timing) bool { return s.Generation == b.Generation })
		t.Timing = newest(append(t.Timing, Timing{Generation: b.Generation, NoticeMS: b.NoticeMS, JudgeMS: b.JudgeMS, BackOffMS: b.BackOffMS}), timingsKept)
	}
	g := &t.View.Generations
	i, found := slices.BinarySearchFunc(*g, b.Generation, byGeneration)
	if found {
		return
	}
	*g = newest(slices.Insert(*g, i, events.GenerationView{
		Generation: b.Generation, World: len(b.Members), Cause: b.Cause,
		Sealed: t.now, Ready: b.Generation == t.LastGood, Members: b.Members,
	}), generationsKept)
	members := 0
	for i := len(*g) - 1; i >= 0; i-- {
		members += len((*g)[i].Members)
		if members > membersKept {
			(*g)[i].Members = nil
		}
	}
}

// prune bounds the workers: it removes ended ones of places that the job no longer has.
func (t *transition) prune() {
	if len(t.View.Workers) <= 2*t.View.Spec.Workers.Max+spareWorkers {
		return
	}
	t.View.Workers = slices.DeleteFunc(t.View.Workers, func(w tables.WorkerView) bool {
		over := w.State.Ended() && !t.member(&w) && !t.hasPlace(w.Place)
		if over {
			delete(t.Slots, w.Place.String())
			delete(t.Nodes, w.Place.Node)
		}
		return over
	})
}

// reportsKept is the number of generations whose members' reported states are kept: reports are at
// most a round or two late.
const reportsKept = 4

// Reported states of a member of a generation. They are only counted; ends decide.
const (
	reportedNothing = '.'
	reportedReady   = 'r'
	reportedSuccess = 's'
	reportedFailure = 'f'
)

// ReportedStates is the newest reported state of each member of a generation, by rank.
type ReportedStates struct {
	Generation ident.Generation `json:"generation"`
	States     string           `json:"states"`
}

// beginReports begins the reports of a generation with those that arrived before its seal.
func (t *transition) beginReports(b events.RoundSealed) {
	t.Reports = newest(append(t.Reports, ReportedStates{b.Generation, strings.Repeat(string(reportedNothing), len(b.Members))}), reportsKept)
	for _, m := range b.Members {
		if w := t.worker(m.Place); w != nil && w.Incarnation == m.Incarnation {
			t.setReported(w.WorkerRef, m.Rank, w.State)
		}
	}
}

// reportedStates are what the states of workers count as. The others report nothing.
var reportedStates = map[tables.WorkerState]byte{
	tables.WorkerStateReady: reportedReady, tables.WorkerStateDone: reportedReady, tables.WorkerStateSucceeded: reportedSuccess,
	tables.WorkerStateFailed: reportedFailure, tables.WorkerStateLost: reportedFailure,
}

// setReported counts the newest report of an incarnation for its generation, unless its state
// reports nothing. rank is a hint, -1 = unknown.
func (t *transition) setReported(r tables.WorkerRef, rank ident.Rank, s tables.WorkerState) {
	if word, ok := reportedStates[s]; ok {
		t.countReport(r, rank, word)
	}
}

// countReport counts a report. A repeat counts once. A READY after an exit is late and ignored; an
// exit replaces READY; a success replaces a presumed loss. An incarnation that was no member of the
// generation is not counted, whatever rank it claims.
func (t *transition) countReport(r tables.WorkerRef, rank ident.Rank, word byte) {
	i := slices.IndexFunc(t.Reports, func(s ReportedStates) bool { return s.Generation == r.Generation })
	g := t.generation(r.Generation)
	if i < 0 || g == nil {
		return
	}
	if rank = rankOf(g.Members, r, rank); rank < 0 || int(rank) >= len(t.Reports[i].States) {
		return
	}
	words := []byte(t.Reports[i].States)
	old := words[rank]
	switch {
	case old == word, old == reportedSuccess, word == reportedReady && old != reportedNothing:
		return
	}
	words[rank] = word
	t.Reports[i].States = string(words)
	*counterOf(&g.Reported, old)--
	*counterOf(&g.Reported, word)++
}

func counterOf(r *events.Reported, word byte) *int {
	switch word {
	case reportedReady:
		return &r.Ready
	case reportedSuccess:
		return &r.Success
	case reportedFailure:
		return &r.Failure
	}
	return new(int) // a missing report is not counted
}

// staleReady reports whether a READY is from an incarnation that does not have the rank it claims:
// its generation is known, and has another member there.
func (t *transition) staleReady(b events.WorkerReady) bool {
	g := t.generation(b.Generation)
	return g != nil && len(g.Members) > 0 && rankOf(g.Members, b.WorkerRef, b.Rank) != b.Rank
}

// rankOf returns the rank of an incarnation among members, or NoRank.
func rankOf(ms []tables.Member, r tables.WorkerRef, rank ident.Rank) ident.Rank {
	its := func(m tables.Member) bool { return m.Place == r.Place && m.Incarnation == r.Incarnation }
	if rank >= 0 && int(rank) < len(ms) && its(ms[rank]) {
		return rank
	}
	return ident.Rank(slices.IndexFunc(ms, its))
}

func (t *transition) generation(n ident.Generation) *events.GenerationView {
	g := t.View.Generations
	i, found := slices.BinarySearchFunc(g, n, byGeneration)
	if !found {
		return nil
	}
	return &g[i]
}

func byGeneration(v events.GenerationView, n ident.Generation) int {
	return int(v.Generation) - int(n)
}

// Limits on what Shrink keeps.
const (
	shortDetail = 96 // bytes of the detail of one worker, failure or incident
	shortKept   = 16 // generations, incidents and counted failures
	leftOut     = "… [left out here, `regroup logs` has it]"
)

// Shrink drops first what can be found elsewhere, then what is needed least: the last output of all
// workers but the first that failed, long details, members of older generations, old history. All
// that decisions depend on stays.
func (s State) Shrink() (State, bool) {
	v := &s.View
	return s, shrinkLines(v, leftOut) || shrinkDetails(v) || shrinkMembers(v) || shrinkHistory(v) || shrinkLines(v, "") || shrinkFirst(v)
}

// shrinkLines replaces the last output of all workers by at most one line.
func shrinkLines(v *events.JobView, instead string) (done bool) {
	for i := range v.Workers {
		lines := &v.Workers[i].Lines
		switch {
		case len(*lines) == 0, len(*lines) == 1 && (*lines)[0] == instead:
		case instead == "":
			*lines, done = nil, true
		default:
			*lines, done = []string{instead}, true
		}
	}
	return done
}

func shrinkDetails(v *events.JobView) (done bool) {
	short := func(text *string) {
		if len(*text) > shortDetail {
			*text, done = limits.Shorten(*text, shortDetail), true
		}
	}
	for i := range v.Workers {
		short(&v.Workers[i].Detail)
		if v.Workers[i].Exception != nil { // the detail begins with it
			v.Workers[i].Exception, done = nil, true
		}
	}
	for i := range v.Generations {
		short(&v.Generations[i].Cause.Detail)
	}
	for i := range v.Incidents {
		short(&v.Incidents[i].Cause.Detail)
	}
	for i := range v.CountedFailures {
		short(&v.CountedFailures[i].Detail)
	}
	return done
}

// shrinkMembers drops the members of all generations but the newest two.
func shrinkMembers(v *events.JobView) (done bool) {
	for i := range max(0, len(v.Generations)-2) {
		if v.Generations[i].Members != nil {
			v.Generations[i].Members, done = nil, true
		}
	}
	return done
}

func shrinkHistory(v *events.JobView) bool {
	g, i, c := len(v.Generations), len(v.Incidents), len(v.CountedFailures)
	v.Generations = newest(v.Generations, shortKept)
	v.Incidents = newest(v.Incidents, shortKept)
	v.CountedFailures = newest(v.CountedFailures, max(shortKept, v.Spec.Failures.SameStep))
	return len(v.Generations) < g || len(v.Incidents) < i || len(v.CountedFailures) < c
}

// newest returns the last n items. The others are released.
func newest[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[len(all)-n:])
}

func shrinkFirst(v *events.JobView) bool {
	f := v.FirstError
	if f == nil || len(f.Lines) == 0 {
		return false
	}
	short := *f
	short.Lines = nil
	v.FirstError = &short
	return true
}

// Recall applies a fact from the log to a job whose document was lost, in part or in full. What the
// registry has decided is taken from its facts; other facts are inputs again, whose decisions are
// not repeated: they are among its facts, or follow from the next input. An input cannot end the
// job here, since its end would not be published.
func (m Machine) Recall(s State, e events.Event, stored time.Time) State {
	if e.Source != events.ServiceSource(events.ServiceRegistry) {
		next, _ := m.Step(s, events.Input{ID: e.ID, Source: e.Source, Number: e.Number, Time: e.Time, Stored: stored, Trace: e.Trace, Body: e.Body}, stored)
		if next.View.State.Terminal() && !s.View.State.Terminal() {
			return s
		}
		return next
	}
	t := &transition{State: s, in: events.Input{ID: e.Cause, Source: e.Source, Trace: e.Trace}, now: e.Time}
	v := &t.View
	switch b := e.Body.(type) {
	case events.JobSubmitted:
		t.State = State{View: events.JobView{Job: b.Job}}
		t.in.Source = b.By
		t.submit(events.JobSubmit{Spec: b.Spec})
	case events.JobScaled:
		v.Spec.Workers = b.Workers
	case events.JobStopping:
		if !v.State.Terminal() && v.State != events.JobStateFinishing {
			t.Stop = &Stop{Command: e.Cause, Reason: b.Reason, Now: b.Now, By: t.now.Add(stopSlack + v.Spec.Stop.Grace.D())}
			v.State, v.Reason = events.JobStateStopping, b.Reason
		}
	case events.JobFinishing:
		if !v.State.Terminal() {
			v.State = events.JobStateFinishing
		}
	case events.JobProgressed:
		if b.Step > v.Step || b.Generation > t.StepGeneration {
			v.Step, v.StepAt, v.Reported, t.StepGeneration = b.Step, e.Time, b.Values, b.Generation
			if t.StepMade = b.At; b.At.IsZero() {
				t.StepMade = e.Time
			}
		}
	case events.JobFailureCounted:
		t.recallFailure(b)
	case events.IncidentOpened:
		t.IncidentCount = max(t.IncidentCount, b.Incident)
		t.Incident, v.OpenIncident = &Incident{Since: t.now}, &b
	case events.IncidentClosed:
		t.IncidentCount = max(t.IncidentCount, b.Incident)
		v.Incidents = slices.DeleteFunc(v.Incidents, func(i events.IncidentClosed) bool { return i.Incident == b.Incident })
		v.Incidents = append(v.Incidents, b)
		t.Incident, v.OpenIncident = nil, nil
	case events.JobEndFact:
		end := b.End()
		v.EndWorkers(events.StillRunning)
		v.State, v.Reason, v.Code, v.Ended, v.OpenIncident, v.Slowest, v.Redundancy = endOf(b), end.Reason, end.Code, e.Time, nil, nil, nil
		t.State = State{View: *v, IncidentCount: t.IncidentCount}
	case events.JobRemoved:
		t.remove()
	}
	return t.State
}

// recallFailure records a failure that was counted, unless an input has led to it again.
func (t *transition) recallFailure(b events.JobFailureCounted) {
	if slices.ContainsFunc(t.View.CountedFailures, func(c events.CountedFailure) bool { return c.Worker == b.Worker && c.Generation == b.Generation }) {
		return
	}
	t.CountedGeneration = max(t.CountedGeneration, b.Generation)
	t.View.Failures = append(t.View.Failures, t.now)
	t.View.CountedFailures = append(t.View.CountedFailures, events.CountedFailure{
		At: t.now, Place: &b.Place, Worker: b.Worker, Generation: b.Generation, Rank: b.Rank, Step: b.Step, Kind: b.Kind, Detail: b.Detail,
	})
}

// endOf returns the state of a job that ended with a fact.
func endOf(b events.JobEndFact) events.JobState {
	switch b.(type) {
	case events.JobSucceeded:
		return events.JobStateSucceeded
	case events.JobStopped:
		return events.JobStateStopped
	}
	return events.JobStateFailed
}

// Over reports whether nothing more is decided about a job, but that its record is removed.
func (s State) Over() bool { return s.View.State.Terminal() || s.Removed != nil }
