package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Submit submits a job and waits until it is accepted. A refusal is Invalid with every field error
// (errcode.FieldErrorsOf). Unavailable means that no reply came in time: then the command has
// expired and is not executed later.
func (c *Client) Submit(ctx context.Context, spec spec.Job) (ident.JobID, error) {
	return c.submit(ctx, newID(), spec, false)
}

// SubmitAfter is Submit, and first calls prepare with the origin of the event and the job, which it
// may change.
func (c *Client) SubmitAfter(ctx context.Context, job spec.Job, prepare func(origin string, job *spec.Job)) (ident.JobID, error) {
	id := newID()
	prepare(ident.Origin(c.source, id), &job)
	return c.submit(ctx, id, job, false)
}

// SubmitOnce submits the job of an event that other clients may have sent too: the first one
// creates it, and all get its id. A client whose spec differs is not told here, but by the
// rendezvous when its node enters.
func (c *Client) SubmitOnce(ctx context.Context, id string, spec spec.Job) (ident.JobID, error) {
	return c.submit(ctx, id, spec, true)
}

// submit publishes the event and waits for its job, whose id is the first of several that no other
// event's job has. shared = other clients may send the event too.
func (c *Client) submit(ctx context.Context, id string, spec spec.Job, shared bool) (job ident.JobID, err error) {
	ids := ident.JobIDs(spec.Name, c.source, id)
	q := Question{Event: events.Event{ID: id, Source: c.source, Trace: c.Trace, Body: events.JobSubmit{Spec: spec}}, Answers: Is[events.JobSubmitted], Again: shared}
	q.Subjects = answersOf(events.FamilyJob, events.JobRejected{}, ids...)
	if shared {
		q.Holds = func(ctx context.Context) bool {
			v, err := c.Submitted(ctx, spec.Name, id)
			job = v.Job
			return err == nil
		}
	}
	answer, err := c.ask(ctx, q, "the registry", string(ids[0]))
	if b, ok := answer.Body.(events.JobSubmitted); ok {
		job = b.Job
	}
	return job, err
}

// Submitted finds the job that an event has created.
func (c *Client) Submitted(ctx context.Context, name, id string) (events.JobView, error) {
	for _, job := range ident.JobIDs(name, c.source, id) {
		v, err := load[events.JobView](ctx, c, events.BucketJobs, string(job))
		if (err == nil && v.SubmittedBy(c.source, id)) || (err != nil && errcode.Of(err) != errcode.NotFound) {
			return v, err
		}
	}
	return events.JobView{}, errcode.Errorf(errcode.NotFound, "there is no job %s of this event", name)
}

// ask publishes a command and waits for its answer, by a service about something.
func (c *Client) ask(ctx context.Context, q Question, by, about string) (events.Event, error) {
	at := c.at.Load()
	q.Time = c.Now()
	answer, err := Asker{Ports: at.Ports, Facts: stream{at.Ports.Log}, Within: c.AnswerWithin, Retry: func(ctx context.Context, do func(context.Context) error) error {
		if err := at.answers(Is[events.JobSubmit](q.Body)); err != nil {
			return err
		}
		return c.retry(ctx, do)
	}}.Ask(ctx, q)
	if errors.Is(err, errNoAnswer) {
		err = errcode.Errorf(errcode.Unavailable, "no answer from %s about %s in %s: is it running? The command has expired and is not carried out any more; more time: --timeout", by, about, c.AnswerWithin)
	}
	return answer, err
}

// question is that of a change.
func question[V any](c *Client, ch Change[V], family events.Family, refusal events.Body) Question {
	return Question{
		Event:    events.Event{ID: newID(), Source: c.source, Entity: ch.Entity, Body: ch.Body},
		Subjects: answersOf(family, refusal, ch.Entity), Answers: ch.Answers,
	}
}

// ChangeJob changes a job and waits for the reply: Invalid if its state does not allow it.
func (c *Client) ChangeJob(ctx context.Context, ch Change[events.JobView]) error {
	q := question(c, ch, events.FamilyJob, events.JobRejected{})
	q.Holds = func(ctx context.Context) bool {
		v, err := load[events.JobView](ctx, c, events.BucketJobs, ch.Entity)
		return err == nil && ch.Holds(v)
	}
	_, err := c.ask(ctx, q, "the registry", ch.Entity)
	return err
}

// ChangeNode changes a node, and waits until discovery shows or refuses it: NotFound if there is no
// such node.
func (c *Client) ChangeNode(ctx context.Context, ch Change[events.NodeView]) error {
	q := question(c, ch, events.FamilyNode, events.NodeRejected{})
	q.Watch = func(ctx context.Context) error {
		ctx, done := context.WithCancelCause(ctx)
		defer done(nil)
		err := c.at.Load().Ports.Buckets.Bucket(events.BucketNodes).Watch(ctx, func(key string, value []byte, _ uint64) {
			if key != ch.Entity || value == nil {
				return
			}
			if v, err := document.View[events.NodeView](value); err == nil && ch.Holds(v) {
				done(ErrStop)
			}
		}, nil)
		if errors.Is(context.Cause(ctx), ErrStop) {
			return ErrStop
		}
		return err
	}
	if ch.Holds == nil {
		q.Watch = nil
	}
	_, err := c.ask(ctx, q, "discovery", ch.Entity)
	return err
}

// StopAndWait stops a job, and waits until it has ended.
func (c *Client) StopAndWait(ctx context.Context, job ident.JobID, reason string, now bool) error {
	if err := c.ChangeJob(ctx, Stop(job, reason, now)); err != nil {
		return err
	}
	return c.AwaitEnd(ctx, job)
}

// StopAll kills the jobs that have not ended and that a function selects.
func (c *Client) StopAll(ctx context.Context, reason string, of func(events.JobView) bool) error {
	jobs, err := c.Jobs(ctx)
	for _, v := range slices.DeleteFunc(jobs, func(v events.JobView) bool { return v.State.Terminal() || !of(v) }) {
		if err == nil {
			err = c.ChangeJob(ctx, Stop(v.Job, reason, true))
		}
	}
	return err
}

// AwaitEnd waits until a job has ended.
//
// Unavailable if nothing runs that could end it.
func (c *Client) AwaitEnd(ctx context.Context, job ident.JobID) error {
	ended := false
	err := c.Follow(ctx, job, func(e events.Event) error {
		if ended = Ended(e.Body); ended {
			return ErrStop
		}
		return nil
	})
	if err == nil && !ended { // of an idle server all facts were read
		return errcode.Errorf(errcode.Unavailable, "%s has not ended, and nothing runs here that could go on with it: start a server with regroup up, or name one with --server", job)
	}
	return err
}

// Remove requests the removal of the record of a terminal job and waits for the reply: Invalid if
// the job is not terminal.
func (c *Client) Remove(ctx context.Context, job ident.JobID) error {
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
	return c.ChangeJob(ctx, Remove(job))
}

// endLeft runs the services for a job whose run was killed before its end was recorded.
func (c *Client) endLeft(ctx context.Context, job ident.JobID) error {
	v, err := load[events.JobView](ctx, c, events.BucketJobs, string(job))
	if err != nil || v.State.Terminal() {
		return err
	}
	ctx, done := c.requestContext(ctx)
	defer done()
	return c.StopAndWait(ctx, job, "its run was killed", true)
}

// CloseRendezvous closes a job to further self-registering nodes. It repeats the request until
// there is a reply or ctx ends.
func (c *Client) CloseRendezvous(ctx context.Context, job ident.JobID, reason string) (events.NodeMembership, error) {
	at := c.at.Load()
	if err := at.answers(false); err != nil {
		return events.NodeMembership{}, err
	}
	ask := events.RendezvousClose{Job: job, Reason: reason}
	var answer []byte
	err := c.retry(ctx, func(ctx context.Context) error {
		if err := expire(ctx, at.Ports.Clock, &ask.Expires); err != nil {
			return err
		}
		data, err := bodies.Encode(ask)
		if err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		answer, err = at.Ports.Calls.Call(try, events.RequestSubject(events.ServiceRendezvous, events.VerbClose), data)
		return err
	})
	if err != nil {
		return events.NodeMembership{}, err
	}
	return bodies.Decode[events.NodeMembership](answer)
}
