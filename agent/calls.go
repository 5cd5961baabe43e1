package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/submitenv"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// call sends one request to any replica of a service.
func call[R events.Body](ctx context.Context, a *Agent, service, verb string, ask events.Body, trace string) (R, error) {
	return callOn[R](ctx, a, events.RequestSubject(service, verb), callTimeout, ask, trace)
}

func callOn[R events.Body](ctx context.Context, a *Agent, subject string, limit time.Duration, ask events.Body, trace string) (R, error) {
	var none R
	data, err := bodies.Encode(ask)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if trace != "" {
		ctx = tracing.NewContext(ctx, trace)
	}
	answer, err := a.opt.Ports.Calls.Call(ctx, subject, data)
	if err != nil {
		return none, err
	}
	return bodies.Decode[R](answer)
}

// calls returns the calls of the worker API, which pass inputs to the machine.
func (a *Agent) calls() workerapi.Calls {
	put := func(in worker.Input) error {
		a.inputs.put(in)
		return nil
	}
	return workerapi.Calls{
		Join: func(w string, r workerprotocol.JoinRequest) {
			a.inputs.put(worker.WorkerJoined{Worker: ident.Incarnation(w), Request: r})
		},
		Report: func(w string, r workerprotocol.Report) error {
			return put(worker.WorkerReported{Worker: ident.Incarnation(w), Report: r})
		},
		Commit: func(w string, r workerprotocol.CommitReport) error {
			return put(worker.WorkerCommitted{Worker: ident.Incarnation(w), Report: r})
		},
		Done: func(w string, r workerprotocol.DoneReport) error {
			return put(worker.WorkerFinished{Worker: ident.Incarnation(w), Report: r})
		},
		Span: func(w string, r workerprotocol.SpanReport) error {
			return put(worker.WorkerSpanned{Worker: ident.Incarnation(w), Report: r})
		},
		Hash: func(w string, r workerprotocol.HashReport) error {
			return put(worker.WorkerHashed{Worker: ident.Incarnation(w), Report: r})
		},
		Peer: a.peer, Checkpoint: a.checkpoint, Preempt: a.preempt, Environment: a.takeEnvironment,
	}
}

func (a *Agent) peer(ctx context.Context, id string, generation uint64, rank int) (workerprotocol.Peer, error) {
	w, ok := a.snapshot.Load().workers[ident.Incarnation(id)]
	if !ok {
		return workerprotocol.Peer{}, refused(errcode.Fenced, "this worker has ended")
	}
	ans, err := call[events.PeersAnswer](ctx, a, events.ServiceRendezvous, events.VerbPeers, events.PeersQuery{
		Job: w.Job, Generation: ident.Generation(generation), Ranks: []int{rank},
	}, "")
	if err != nil {
		return workerprotocol.Peer{}, refused(errcode.Of(err), err.Error())
	}
	addr, ok := ans.Addresses[rank]
	if !ok {
		return workerprotocol.Peer{}, refused(errcode.NotFound, fmt.Sprintf("there is no rank %d in %s", rank, ident.Generation(generation)))
	}
	return workerprotocol.Peer{Rank: rank, Address: addr}, nil
}

// takeEnvironment keeps the environment of a command for the job that it submits next.
func (a *Agent) takeEnvironment(_ string, r workerprotocol.SubmitEnvironment) error {
	no := func(format string, args ...any) error {
		return refused(errcode.Conflict, fmt.Sprintf(format, args...))
	}
	if r.Dir == "" {
		return a.submits.Remove(r.Origin)
	}
	if r.Agent != string(a.opt.Incarnation) {
		return no("another agent has the state folder of %s", a.opt.Node)
	}
	switch who, err := a.opt.account(r.User); {
	case err != nil:
		return no("%v", err)
	case another(who):
		return no("workers run as %s on %s", who.Name, a.opt.Node)
	}
	for path, theirs := range map[string]workerprotocol.FileID{"/": r.Root, r.Dir: r.DirID} {
		switch ours, err := submitenv.Identify(path); {
		case err != nil:
			return no("the agent of %s cannot see %s: %v", a.opt.Node, path, err)
		case ours != theirs:
			return no("the agent of %s sees another %s, as in a container", a.opt.Node, path)
		}
	}
	return a.submits.Keep(r.Origin, submitenv.Environment{Jobs: ident.JobIDsOf(r.Name, r.Origin), Dir: r.Dir, Variables: r.Variables})
}

// inherit finds the environment that the workers of a job inherit, if it is not the agent's: its
// variables, and the directory in which they run unless the job names one. The error says why it
// is not here.
func (a *Agent) inherit(job ident.JobID, who *worker.Account, from *worker.Inherited, dir *string) error {
	if from.SubmitEnvironment == "" {
		return nil
	}
	if another(who) {
		return errcode.Errorf(errcode.Invalid, "they are of another user than %s", who.Name)
	}
	e, err := a.submits.Load(from.SubmitEnvironment, job)
	if err == nil {
		from.Variables, *dir = e.Environ(), cmp.Or(*dir, e.Dir)
	}
	return err
}

// forgetJob removes what the node keeps for a job that has ended: its environment, its checkpoints.
func (a *Agent) forgetJob(job ident.JobID, origin string) {
	if err := a.ckpts.End(job); err != nil {
		a.opt.Logger.Warn("checkpoints of an ended job stay on disk", "node", a.opt.Node, "job", job, "reason", err)
	}
	if origin == "" {
		return
	}
	_, err := a.submits.Load(origin, job)
	if err == nil {
		err = a.submits.Remove(origin)
	}
	if err != nil && errcode.Of(err) != errcode.NotFound {
		a.opt.Logger.Warn("the environment of an ended job stays in the state folder", "node", a.opt.Node, "job", job, "reason", err)
	}
}

// expireEvery is the time between two looks for them: short, for agents that do not live long.
const expireEvery = 5 * time.Minute

// expireKept removes what is kept for jobs that will not come.
func (a *Agent) expireKept(work context.Context) {
	for wait.Sleep(work, expireEvery) {
		now, held := time.Now(), a.heldJobs()
		if err := a.submits.Expire(now, held); err != nil {
			a.opt.Logger.Warn("environments of ended jobs stay in the state folder", "node", a.opt.Node, "reason", err)
		}
		if err := a.ckpts.Expire(now, held); err != nil {
			a.opt.Logger.Warn("checkpoints of ended jobs stay on disk", "node", a.opt.Node, "reason", err)
		}
	}
}

func (a *Agent) heldJobs() []ident.JobID {
	return slices.Collect(maps.Keys(a.snapshot.Load().revisions))
}

// checkpointFolder returns the folder for checkpoints of a worker's job; empty = it gets none.
func (a *Agent) checkpointFolder(s worker.StartProcess) string {
	if _, own := s.Env[workerprotocol.EnvCheckpointDir]; own || s.Generation > 0 || a.ckpts.Space == 0 {
		return ""
	}
	without := func(what string, err error) string {
		a.unkept.Do(func() {
			a.opt.Logger.Warn("no checkpoints are made for jobs that name no folder: "+what, "node", a.opt.Node, "job", s.Job, "reason", err)
		})
		return ""
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if another(s.Account) {
		if err := a.ckpts.Reachable(s.Account.UID, s.Account.GID); err != nil {
			return without("give the agent one that its users can enter (--checkpoints)", err)
		}
		uid, gid = int(s.Account.UID), int(s.Account.GID)
	}
	folder, err := a.ckpts.Folder(s.Job, uid, gid)
	if err != nil {
		return without("one cannot be made", err)
	}
	return folder
}

// checkpoint grants the space for one.
func (a *Agent) checkpoint(id string, r workerprotocol.CheckpointRequest) error {
	w, ok := a.snapshot.Load().workers[ident.Incarnation(id)]
	if !ok {
		return refused(errcode.Fenced, "this worker has ended")
	}
	if err := a.ckpts.Reserve(w.Job, r.Bytes, a.heldJobs()); err != nil {
		return refused(errcode.Of(err), err.Error())
	}
	return nil
}

func refused(c errcode.Code, text string) error {
	return &workerapi.Refusal{Status: status(c), Code: string(c), Message: text}
}
