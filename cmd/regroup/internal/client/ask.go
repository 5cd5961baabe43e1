package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/spec"
)

// unknownEntity is the entity of a refusal when no job could be derived from the command.
const unknownEntity = "unknown"

// errNoAnswer ends the wait for an answer.
var errNoAnswer = errors.New("no answer")

// Submit submits a job and waits until it is accepted. A refusal is Invalid with every field error
// (events.FieldErrorsOf). Unavailable means that no reply came in time: then the command has
// expired and is not executed later.
func (c *Client) Submit(ctx context.Context, spec spec.Job) (events.JobID, error) {
	return c.submit(ctx, newID(), spec, false)
}

// SubmitAfter is Submit, and first calls prepare with the origin of the event and the job, which it
// may change.
func (c *Client) SubmitAfter(ctx context.Context, job spec.Job, prepare func(origin string, job *spec.Job)) (events.JobID, error) {
	id := newID()
	prepare(events.Origin(c.source, id), &job)
	return c.submit(ctx, id, job, false)
}

// SubmitOnce submits the job of an event that other clients may have sent too: the first one
// creates it, and all get its id. A client whose spec differs is not told here, but by the
// rendezvous when its node enters.
func (c *Client) SubmitOnce(ctx context.Context, id string, spec spec.Job) (events.JobID, error) {
	return c.submit(ctx, id, spec, true)
}

// submit publishes the event and waits for its job, whose id is the first of several that no other
// event's job has. shared = other clients may send the event too.
func (c *Client) submit(ctx context.Context, id string, spec spec.Job, shared bool) (events.JobID, error) {
	e := events.Event{ID: id, Source: c.source, Trace: c.Trace, Body: events.JobSubmit{Spec: spec}}
	ids := events.JobIDs(spec.Name, e.Source, e.ID)
	job := ids[0]
	var there func(events.JobView) bool
	if shared {
		there = func(v events.JobView) bool {
			ok := v.SubmittedBy(c.source, id)
			if ok {
				job = v.Job
			}
			return ok
		}
	}
	err := c.askSince(ctx, shared, ids, e, func(b events.Body) bool {
		s, ok := b.(events.JobSubmitted)
		if ok {
			job = s.Job
		}
		return ok
	}, there)
	return job, err
}

// Submitted finds the job that an event has created.
func (c *Client) Submitted(ctx context.Context, name, id string) (events.JobView, error) {
	for _, job := range events.JobIDs(name, c.source, id) {
		v, err := load[events.JobView](ctx, c, events.BucketJobs, string(job))
		if (err == nil && v.SubmittedBy(c.source, id)) || (err != nil && events.CodeOf(err) != events.NotFound) {
			return v, err
		}
	}
	return events.JobView{}, events.Errorf(events.NotFound, "there is no job %s of this event", name)
}

// expire sets the expiry of a command, unless it has one, to the deadline of ctx by the store's
// clock.
func expire(ctx context.Context, clock events.Clock, at *time.Time) error {
	until, bounded := ctx.Deadline()
	if !bounded || !at.IsZero() {
		return nil
	}
	now, err := clock.Now(ctx)
	if err == nil {
		*at = now.Add(time.Until(until))
	}
	return err
}

// Scale requests another number of workers and waits for the reply.
func (c *Client) Scale(ctx context.Context, job events.JobID, w spec.Workers) error {
	return c.ask(ctx, []events.JobID{job}, c.command(job, events.JobScale{Job: job, Workers: w}), func(b events.Body) bool {
		_, ok := b.(events.JobScaled)
		return ok
	}, func(v events.JobView) bool { return v.Spec.Workers == w })
}

// Stop requests the end of a job and waits until the registry has applied it; the workers then get
// their signal and grace, or with now are killed.
func (c *Client) Stop(ctx context.Context, job events.JobID, reason string, now bool) error {
	return c.ask(ctx, []events.JobID{job}, c.command(job, events.JobStop{Job: job, Reason: reason, Now: now}), func(b events.Body) bool {
		_, stopping := b.(events.JobStopping)
		return stopping || Ended(b)
	}, func(v events.JobView) bool {
		return v.State.Terminal() || (!now && v.State == events.JobStateStopping) || v.State == events.JobStateFinishing
	})
}

// StopAndWait is Stop, and waits until the job has ended.
func (c *Client) StopAndWait(ctx context.Context, job events.JobID, reason string, now bool) error {
	if err := c.Stop(ctx, job, reason, now); err != nil {
		return err
	}
	return c.AwaitEnd(ctx, job)
}

// AwaitEnd waits until a job has ended.
//
// Unavailable if nothing runs that could end it.
func (c *Client) AwaitEnd(ctx context.Context, job events.JobID) error {
	ended := false
	err := c.Follow(ctx, job, func(e events.Event) error {
		if ended = Ended(e.Body); ended {
			return ErrStop
		}
		return nil
	})
	if err == nil && !ended { // of an idle server all facts were read
		return events.Errorf(events.Unavailable, "%s has not ended, and nothing runs here that could go on with it: start a server with regroup up, or name one with --server", job)
	}
	return err
}

// Ended reports whether a fact says that its job has ended.
func Ended(b events.Body) bool {
	switch b.(type) {
	case events.JobSucceeded, events.JobFailed, events.JobStopped:
		return true
	}
	return false
}

// Remove requests the removal of the record of a terminal job and waits for the reply: Invalid if
// the job is not terminal.
func (c *Client) Remove(ctx context.Context, job events.JobID) error {
	if at := c.at.Load(); at.Idle && at.Serve != nil {
		if err := at.Serve(); err != nil {
			return err
		}
		served := *at
		served.Idle = false
		c.at.Store(&served)
		defer c.at.Store(at)
		if err := c.endLeft(ctx, job); err != nil {
			return err
		}
	}
	return c.ask(ctx, []events.JobID{job}, c.command(job, events.JobRemove{Job: job}), func(b events.Body) bool {
		_, ok := b.(events.JobRemoved)
		return ok
	}, func(v events.JobView) bool { return v.State == "" })
}

// endLeft runs the services for a job whose run was killed before its end was recorded.
func (c *Client) endLeft(ctx context.Context, job events.JobID) error {
	v, err := load[events.JobView](ctx, c, events.BucketJobs, string(job))
	if err != nil || v.State.Terminal() {
		return err
	}
	ctx, done := c.requestContext(ctx)
	defer done()
	return c.StopAndWait(ctx, job, "its run was killed", true)
}

func (c *Client) command(job events.JobID, b events.Body) events.Event {
	return events.Event{ID: newID(), Source: c.source, Entity: string(job), Body: b}
}

// publish stores a command that expires with ctx: a command that this client reports as failed is
// not executed later. The expiry is by the store's clock, independent of the local one. It returns
// the stored event.
func (c *Client) publish(ctx context.Context, e events.Event) (events.Event, error) {
	_, submit := e.Body.(events.JobSubmit)
	at := c.at.Load()
	if err := at.answers(submit); err != nil {
		return e, err
	}
	e.Time = c.Now()
	err := c.retry(ctx, func(ctx context.Context) error {
		if err := expire(ctx, at.Ports.Clock, &e.Expires); err != nil {
			return err
		}
		m, err := cloudevent.Encode(e)
		if err != nil {
			return err
		}
		_, err = at.Ports.Log.Publish(ctx, m)
		return err
	})
	return e, err
}

// ask publishes a command and waits for the fact that it caused. Some commands without effect cause
// no fact; for those, satisfied, unless it is nil, checks the job. The command concerns whichever
// of jobs exists or will exist.
func (c *Client) ask(ctx context.Context, jobs []events.JobID, e events.Event, answers func(events.Body) bool, satisfied func(events.JobView) bool) error {
	return c.askSince(ctx, false, jobs, e, answers, satisfied)
}

// askSince is ask, and with shared takes the answer to the same event of another client too.
func (c *Client) askSince(ctx context.Context, shared bool, jobs []events.JobID, e events.Event, answers func(events.Body) bool, satisfied func(events.JobView) bool) error {
	wait, cancel := c.requestContext(ctx)
	defer cancel()
	there := func(ctx context.Context) bool {
		return satisfied != nil && slices.ContainsFunc(jobs, func(job events.JobID) bool {
			v, err := load[events.JobView](ctx, c, events.BucketJobs, string(job))
			return err == nil && satisfied(v)
		})
	}
	if there(wait) {
		return nil
	}
	after := uint64(0)
	if !shared {
		after = c.lastFact(wait)
	}
	e, err := c.publish(wait, e)
	if err != nil {
		return err
	}
	subjects := []string{events.FactSubject(events.JobRejected{}.Type(), unknownEntity)}
	for _, job := range jobs {
		subjects = append(subjects, events.FamilySubject(events.FamilyJob, string(job)))
	}
	answered, err := c.awaitAnswer(wait, e, after, subjects, answers)
	if answered || !errors.Is(context.Cause(wait), errNoAnswer) {
		return err
	}
	last, done := context.WithTimeout(ctx, lastCheck)
	defer done()
	if there(last) {
		return nil
	}
	return c.unanswered("the registry", string(jobs[0]))
}

// lastCheck bounds the look for the last fact before a command, and the last check for the effect
// of one without a reply.
const lastCheck = time.Second

// lastFact returns the position of the last fact: the answers to a command that is published later
// follow it. 0 = there is none, or it is unknown.
func (c *Client) lastFact(ctx context.Context) uint64 {
	ctx, done := context.WithTimeout(ctx, lastCheck)
	defer done()
	last, err := c.at.Load().Ports.Log.Last(ctx, events.StreamFacts, events.AllFacts)
	if err != nil {
		return 0
	}
	return last.Sequence
}

// awaitAnswer reads the facts after a position until one is the answer to a command: a refusal,
// which is the error, or a fact that the command has caused and that answers accepts. Refusals of
// all clients may share a subject, so that reading them from the first could take long.
func (c *Client) awaitAnswer(ctx context.Context, e events.Event, after uint64, subjects []string, answers func(events.Body) bool) (answered bool, refusal error) {
	refused := func(command string, expired time.Time, code events.Code, reasons []spec.FieldError) error {
		if command != e.ID || !(expired.IsZero() || expired.Equal(e.Expires)) {
			return nil // of another command, or of an expired event with the same id
		}
		refusal = events.RefuseAs(code, reasons)
		return ErrStop
	}
	err := c.at.Load().Ports.Log.Follow(ctx, events.Follow{
		Stream: events.StreamFacts, Start: events.FromSequence, Sequence: after + 1, Subjects: subjects,
	}, func(s events.Stored) error {
		f, err := cloudevent.DecodeStored(s)
		if err != nil {
			return nil //nolint:nilerr // of a newer version; not the answer to this command
		}
		switch r := f.Body.(type) {
		case events.JobRejected:
			return refused(r.Command, r.Expired, r.Code, r.Errors)
		case events.NodeRejected:
			return refused(r.Command, r.Expired, r.Code, r.Errors)
		}
		if f.Cause == e.ID && answers(f.Body) {
			return ErrStop
		}
		return nil
	}, nil)
	if errors.Is(err, ErrStop) {
		return true, refusal
	}
	return false, err
}

// unanswered is the error of a command without a reply.
func (c *Client) unanswered(by, about string) error {
	return events.Errorf(events.Unavailable, "no answer from %s about %s in %s: is it running? The command has expired and is not carried out any more; more time: --timeout", by, about, c.AnswerWithin)
}
