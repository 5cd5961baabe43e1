package sim

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// do executes an action of the agent's machine.
func (n *node) do(action worker.Action) {
	w := n.w
	switch a := action.(type) {
	case worker.StartProcess:
		newProcess(n, a)
	case worker.SignalProcess:
		if p := n.procs[a.Worker]; p != nil {
			p.term()
		}
	case worker.KillProcess:
		if p := n.procs[a.Worker]; p != nil {
			n.after(w.between(time.Millisecond, 15*time.Millisecond), func() { p.exit(-1, "SIGKILL") })
		}
	case worker.ExamineProcess:
		if p := n.procs[a.Worker]; p != nil && p.dying != nil {
			n.later(time.Millisecond, *p.dying)
		}
	case worker.PrepareMaster:
		addr := ""
		if !w.chance(5) {
			addr = fmt.Sprintf("%s.test:%d", n.id, 20000+w.any(20000))
		}
		n.later(w.hop(), worker.MasterPrepared{Job: a.Job, Address: addr})
	case worker.SendJoin:
		w.logf("%s: join %s %s left g%d planned %t commit %d.%d", n.id, a.Join.Job, a.Join.Place, a.Join.Left, a.Join.Planned, a.Join.Commit.Generation, a.Join.Commit.Step)
		n.join(a.Join)
	case worker.AnswerJoin:
		if p := n.procs[a.Worker]; p != nil && a.Assignment.Verdict == workerprotocol.Assigned && a.Assignment.Generation <= p.leftReported {
			w.check.fail(4, "%s was assigned to g%d, but it has said that it has left g%d", p.start.Place, a.Assignment.Generation, p.leftReported)
		}
		if p := n.procs[a.Worker]; p != nil && !w.chance(3) { // sometimes no poll is waiting
			n.after(w.between(0, 5*time.Millisecond), func() { p.assigned(a.Assignment) })
		}
	case worker.RefuseJoin:
		w.logf("%s: worker %s is refused: %s", n.id, a.Worker, a.Reason)
		if p := n.procs[a.Worker]; p != nil && p.waiting {
			w.after(w.between(0, 100*time.Millisecond), func() { p.exit(1, "") })
		}
	case worker.PushChange:
		if p := n.procs[a.Worker]; p != nil {
			w.after(w.between(0, 20*time.Millisecond), func() { p.change(a.Change) })
		}
	case worker.PublishFact:
		n.fact(a)
	case worker.SendProgress:
		if !n.cut && !n.mute {
			w.progress(a.Progress)
		}
	case worker.SendNotice:
		if !n.cut && !n.mute {
			w.notice(events.NoticeEnvelope{Notice: &a.Notice})
		}
	}
}

// join sends one request to the rendezvous.
func (n *node) join(j events.MemberJoin) {
	n.w.check.joins(j)
	n.w.call(n, events.ServiceRendezvous, j, func(b events.Body, err error) {
		in := worker.JoinAnswered{Worker: j.Incarnation}
		if err != nil {
			in.Refused, in.Reason = errcode.Of(err), err.Error()
			n.w.logf("%s: join of %s refused: %s", n.id, j.Place, err)
		} else if b != nil {
			in.Waiting, _ = b.(events.MemberWaiting)
		}
		n.input(in)
	})
}

// fact queues a fact to be stored.
func (n *node) fact(a worker.PublishFact) {
	e := events.Event{
		ID: n.w.id("fact"), Source: fmt.Sprintf("/regroup/agent/%s/%s", n.id, n.agent), Entity: string(a.Job),
		Time: n.w.now, Trace: a.Trace, Body: a.Body,
	}
	n.w.logf("%s: fact %s %s", n.id, a.Body.Type().Kind(), brief(a.Body))
	m, err := cloudevent.Encode(e)
	if err != nil {
		n.w.check.fail(0, "agent's fact: %v", err)
		return
	}
	n.facts = append(n.facts, m)
	n.store()
}

// store sends the first fact until its acknowledgement comes.
func (n *node) store() {
	if n.busy || n.cut || n.frozen || len(n.facts) == 0 {
		return
	}
	n.busy = true
	n.after(n.w.hop(), func() {
		n.busy = false
		if n.cut || n.frozen {
			return // resumed when the connection is back
		}
		lost := n.deaf || n.w.chance(n.w.sc.loss)
		if n.mute || lost && !n.deaf && n.w.chance(50) { // the message is lost
			n.w.after(200*time.Millisecond, n.store)
			return
		}
		n.w.publish(n.facts[0])
		if lost { // the acknowledgement is lost
			n.w.after(200*time.Millisecond, n.store)
			return
		}
		n.facts = n.facts[1:]
		n.store()
		n.leave()
	})
}
