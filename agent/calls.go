package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
)

// call sends one request to any replica of a service.
func call[R events.Body](ctx context.Context, a *Agent, service, verb string, ask events.Body, trace string) (R, error) {
	return callOn[R](ctx, a, events.RequestSubject(service, verb), a.opt.Config.CallTimeout, ask, trace)
}

func callOn[R events.Body](ctx context.Context, a *Agent, subject string, limit time.Duration, ask events.Body, trace string) (R, error) {
	var none R
	data, err := events.EncodeBody(ask)
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if trace != "" {
		ctx = events.WithTrace(ctx, trace)
	}
	answer, err := a.opt.Ports.Calls.Call(ctx, subject, data)
	if err != nil {
		return none, err
	}
	return events.DecodeBody[R](answer)
}

// calls returns the calls of the worker API, which pass inputs to the machine.
func (a *Agent) calls() workerapi.Calls {
	return workerapi.Calls{
		Join: func(w string, r wire.JoinRequest) {
			a.inputs.put(worker.WorkerJoined{Worker: events.Incarnation(w), Request: r})
		},
		Report: func(w string, r wire.Report) {
			a.inputs.put(worker.WorkerReported{Worker: events.Incarnation(w), Report: r})
		},
		Commit: func(w string, r wire.CommitReport) {
			a.inputs.put(worker.WorkerCommitted{Worker: events.Incarnation(w), Report: r})
		},
		Done: func(w string, r wire.DoneReport) {
			a.inputs.put(worker.WorkerFinished{Worker: events.Incarnation(w), Report: r})
		},
		Peer:    a.peer,
		Preempt: a.preempt,
	}
}

func (a *Agent) peer(ctx context.Context, id string, generation uint64, rank int) (wire.Peer, error) {
	w, ok := a.snapshot.Load().workers[events.Incarnation(id)]
	if !ok {
		return wire.Peer{}, refused(events.Fenced, "this worker has ended")
	}
	ans, err := call[events.PeersAnswer](ctx, a, events.ServiceRendezvous, events.VerbPeers, events.PeersQuery{
		Job: w.Job, Generation: events.Generation(generation), Ranks: []int{rank},
	}, "")
	if err != nil {
		return wire.Peer{}, refused(events.CodeOf(err), err.Error())
	}
	addr, ok := ans.Addresses[rank]
	if !ok {
		return wire.Peer{}, refused(events.NotFound, fmt.Sprintf("there is no rank %d in %s", rank, events.Generation(generation)))
	}
	return wire.Peer{Rank: rank, Address: addr}, nil
}

func refused(c events.Code, text string) error {
	return &workerapi.Refusal{Status: status(c), Code: string(c), Message: text}
}
