package job

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/english"
)

func (t *transition) command() {
	switch b := t.in.Body.(type) {
	case events.JobSubmit:
		t.submit(b)
	case events.JobScale:
		if t.permitted() {
			t.scale(b)
		}
	case events.JobStop:
		if t.permitted() {
			t.stop(b)
		}
	case events.JobRemove:
		if t.permitted() {
			t.remove()
		}
	}
}

// permitted refuses what a submitter asks about a job that it has not submitted, and leaves no
// trace in the job. A stop that comes before its submit is refused too: the job might become
// another's.
func (t *transition) permitted() bool {
	by, ok := events.SubmitterOf(t.in.Source)
	if !ok {
		return true
	}
	owner, owned := events.SubmitterOf(t.View.By)
	switch {
	case !t.known():
		t.d.Refusal = errcode.RefuseAs(errcode.NotFound, []spec.FieldError{{Path: "job", Message: fmt.Sprintf("there is no job %s", t.View.Job)}})
	case !owned || owner.Name != by.Name:
		t.d.Refusal = errcode.Refuse([]spec.FieldError{{Path: "job", Message: fmt.Sprintf("%s was submitted by %s: a submitter may change its own jobs only", t.View.Job, t.View.By)}})
	}
	return t.d.Refusal == nil
}

// submit accepts the job or refuses it with all errors of its spec. A repeat of the event is
// answered with the existing job. A different event, which was routed here before the job's id was
// known to be taken, must be routed to another id.
func (t *transition) submit(c events.JobSubmit) {
	if t.Removed != nil {
		if t.Removed.SubmittedBy(t.in.Source, t.in.ID) {
			t.rejectField("job", "%s was submitted by this event before, and removed: submit it by another", t.View.Job)
			return
		}
		t.d.Refusal = errcode.Errorf(errcode.Conflict, "%s is the job of another event", t.View.Job)
		return
	}
	if t.known() {
		if !t.View.SubmittedBy(t.in.Source, t.in.ID) {
			t.d.Refusal = errcode.Errorf(errcode.Conflict, "%s is the job of another event", t.View.Job)
		}
		return
	}
	job := c.Spec.WithDefaults()
	findings := job.Check()
	if by, ok := events.SubmitterOf(t.in.Source); ok {
		if wrong := job.RunAs(by.User, by.Name); wrong != nil {
			findings = append(findings, *wrong)
		}
	}
	origin := ident.Origin(t.in.Source, t.in.ID)
	if of := job.Processes.SubmitEnvironment; of != "" && of != origin {
		findings = append(findings, spec.FieldError{Path: "processes.submitEnvironment", Message: "is that of another job: leave it out"})
	}
	if len(findings) > 0 {
		t.reject(errcode.Invalid, findings)
		return
	}
	v := &t.View
	v.Spec, v.By, v.Origin, v.Submitted = job, t.in.Source, origin, t.now
	v.State, v.Reason = events.JobStateWaiting, "waits for the scheduler"
	t.Client = tracing.Own(t.in.Trace, v.Job)
	if job.SelfRegistered() {
		v.Reason = fmt.Sprintf("waits for %s to join it by themselves", english.Between(job.Rendezvous.Nodes.Min, job.Rendezvous.Nodes.Max, "node"))
	}
	v.Ledger.Samples = job.Data.Samples
	v.Workers, v.Generations, v.Incidents = []tables.WorkerView{}, []events.GenerationView{}, []events.IncidentClosed{}
	t.d.Facts = append(t.d.Facts, events.Fact{
		Body:  events.JobSubmitted{Job: v.Job, Spec: job, By: v.By},
		Cause: t.in.ID, Trace: tracing.JobTrace(v.Job),
	})
	accept := events.Span{Name: "accept job.submit", Parent: tracing.JobTrace(v.Job), Start: t.now, End: t.now}
	if t.Client != "" {
		accept.Links = []string{t.Client}
		t.span(events.Span{Name: "accept job.submit", Parent: t.Client, Start: t.now, End: t.now, Links: []string{tracing.JobTrace(v.Job)}})
	}
	t.span(accept)
	if t.Stop != nil {
		t.endJob(events.JobStateStopped, "", t.Stop.Reason+" (the stop came before the submit)")
	}
}

// scale changes the wanted number of workers; scheduler and rendezvous carry out the change.
func (t *transition) scale(c events.JobScale) {
	switch {
	case !t.known():
		t.rejectUnknown()
		return
	case t.View.State.Terminal(), t.View.State == events.JobStateStopping, t.View.State == events.JobStateFinishing:
		t.rejectField("job", "%s is %s: it takes no other number of workers", t.View.Job, t.View.State)
		return
	case t.View.Spec.SelfRegistered():
		t.rejectField("workers", "the nodes of %s come by themselves: start agents that join it, or stop some", t.View.Job)
		return
	case c.Workers == t.View.Spec.Workers:
		return
	}
	spec := t.View.Spec
	spec.Workers = c.Workers
	if findings := spec.Check(); len(findings) > 0 {
		t.reject(errcode.Invalid, findings)
		return
	}
	t.View.Spec.Workers = c.Workers
	t.publish(events.JobScaled{Job: t.View.Job, Workers: c.Workers})
}

// stop ends the job: at once when no worker runs, otherwise when the workers have ended. A second
// stop can only shorten the grace.
func (t *transition) stop(c events.JobStop) {
	reason := cmp.Or(c.Reason, "stopped by a command")
	if t.Stop != nil {
		reason = cmp.Or(c.Reason, t.Stop.Reason, reason)
	}
	switch {
	case t.View.State.Terminal():
		return
	case t.Removed != nil:
		t.rejectUnknown()
		return
	case !t.known():
		if t.Stop == nil {
			t.Stop = &Stop{Command: t.in.ID, Reason: reason, Now: c.Now, By: t.now.Add(rememberStop)}
		}
		return
	case t.View.State == events.JobStateFinishing:
		// The training is complete: a stop only ends the wait for the remaining workers.
		if t.Finish.Stopped.IsZero() || (c.Now && !t.Finish.Now) {
			t.stopRest(reason, c.Now)
		}
		return
	case t.Stop != nil && (t.Stop.Now || !c.Now):
		return
	case !t.running():
		t.Stop = &Stop{Command: t.in.ID, Reason: reason, Now: c.Now, By: t.now}
		t.endJob(events.JobStateStopped, "", reason)
		return
	}
	by := t.now.Add(stopSlack)
	if !c.Now {
		by = by.Add(t.View.Spec.Stop.Grace.D())
	}
	t.Stop = &Stop{Command: t.in.ID, Reason: reason, Now: c.Now, By: by}
	t.View.State, t.View.Reason = events.JobStateStopping, reason
	t.publish(events.JobStopping{Job: t.View.Job, Reason: reason, Now: c.Now})
}

// forgetStop stops waiting for the submit that belongs to a stop.
func (t *transition) forgetStop() {
	if t.known() || t.Stop == nil || t.now.Before(t.Stop.By) {
		return
	}
	t.in.ID = t.Stop.Command
	t.rejectUnknown()
	t.Stop = nil
	t.d.Refusal = nil // no client waits for the answer
}

// remove clears a job that has ended, except for the event that submitted it.
func (t *transition) remove() {
	switch {
	case !t.known():
		t.rejectUnknown()
		return
	case !t.View.State.Terminal():
		t.rejectField("job", "%s is %s: stop it first", t.View.Job, t.View.State)
		return
	}
	t.publish(events.JobRemoved{Job: t.View.Job, By: t.in.Source})
	t.State = State{
		View:    events.JobView{Job: t.View.Job},
		Removed: &Removed{Origin: t.View.Origin, By: t.View.By, Until: t.now.Add(rememberRemoved)},
	}
	t.d.ResetApplied = true
}

// forgetRemoved deletes the document of a removed job, and retries if it cannot be deleted now.
func (t *transition) forgetRemoved() {
	if t.Removed != nil && !t.now.Before(t.Removed.Until) {
		r := *t.Removed
		r.Until = t.now.Add(forgetRetry)
		t.Removed = &r
		t.d.Forget = true
	}
}

// rejectUnknown refuses a command about a job that does not exist.
func (t *transition) rejectUnknown() {
	t.reject(errcode.NotFound, []spec.FieldError{{Path: "job", Message: fmt.Sprintf("there is no job %s", t.View.Job)}})
}

// rejectField refuses a command because of one field.
func (t *transition) rejectField(path, format string, args ...any) {
	t.reject(errcode.Invalid, []spec.FieldError{{Path: path, Message: fmt.Sprintf(format, args...)}})
}

// reject refuses a command with all reasons, as a fact and in the reply.
func (t *transition) reject(code errcode.Code, findings []spec.FieldError) {
	t.publish(events.JobRejected{Job: t.View.Job, Command: t.in.ID, Code: code, Errors: findings})
	var all []error
	for _, f := range findings {
		all = append(all, fmt.Errorf("%s: %s", f.Path, f.Message))
	}
	t.d.Refusal = errcode.Errorf(code, "%w", errors.Join(all...))
}
