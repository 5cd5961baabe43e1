package agent

import (
	"context"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
)

// Joining makes an agent register itself for one job. The agent then offers no slots to the
// scheduler, and Run ends with the job.
type Joining struct {
	Job      ident.JobID
	Spec     spec.Job                    // with its defaults; it must be the same on every node
	OnChange func(events.NodeMembership) // called after every change; may be nil, must not block
}

// membership keeps the node registered for the job. It asks once and then waits for launches. It
// asks again when a launch shows that its part has changed, after a reconnect, and as often as the
// agent says hello, in case the rendezvous has lost it.
type membership struct {
	a       *Agent
	wake    chan struct{} // capacity 1
	stopNow chan struct{} // capacity 1: stop waiting to leave
	mu      sync.Mutex
	last    events.NodeMembership
	err     error
	was     events.Phase // of the newest launch
	in      bool         // it was in one of the lists
}

// Membership returns the node's membership in the job that it has joined, once Run has returned:
// final, unless Run was ended before. err says why the node was refused. entered reports whether it
// was ever admitted.
func (a *Agent) Membership() (s events.NodeMembership, entered bool, err error) {
	if a.member == nil {
		return s, false, nil
	}
	a.member.mu.Lock()
	defer a.member.mu.Unlock()
	return a.member.last, a.member.in, a.member.err
}

func (m *membership) launched(l events.Launch) {
	if l.Job != m.a.opt.Join.Job {
		return
	}
	m.mu.Lock()
	changed := (m.was == events.PhaseStop) != (l.Phase == events.PhaseStop) || m.was == ""
	m.was = l.Phase
	m.mu.Unlock()
	if changed || l.Phase == events.PhaseStop {
		wait.Notify(m.wake)
	}
}

// gathered handles a signal about the progress of the rendezvous.
func (m *membership) gathered(data []byte) {
	g, err := bodies.Decode[events.RendezvousStatus](data)
	if err != nil {
		return // a signal may be lost
	}
	m.mu.Lock()
	s := m.last
	m.mu.Unlock()
	if s.Membership != "" && !s.Membership.Final() {
		s.RendezvousStatus = g
		m.update(s)
	}
}

func (m *membership) update(s events.NodeMembership) {
	m.mu.Lock()
	same := m.last == s
	m.last = s
	m.in = m.in || !s.Membership.Final()
	m.mu.Unlock()
	if !same && m.a.opt.Join.OnChange != nil {
		m.a.opt.Join.OnChange(s)
	}
}

// run keeps the node in the job until user ends, the job ends, or the node is removed for good.
func (m *membership) run(user, work context.Context) {
	select {
	case <-m.a.known:
	case <-user.Done():
		return
	case <-work.Done():
		return
	}
	for work.Err() == nil && user.Err() == nil {
		if m.enter(user) {
			return
		}
		select {
		case <-m.wake:
		case <-time.After(helloEvery):
		case <-user.Done():
		case <-work.Done():
		}
	}
	if work.Err() == nil {
		m.exit(work)
	}
}

// enter repeats the request until it is answered, and reports whether the answer is final.
func (m *membership) enter(ctx context.Context) (final bool) {
	a, j := m.a, m.a.opt.Join
	ask := events.NodeEnter{Job: j.Job, Node: a.opt.Node, Incarnation: a.opt.Incarnation, Slots: a.opt.Slots, Spec: j.Spec}
	retry, logged := wait.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}, ""
	for ctx.Err() == nil {
		s, err := m.call(ctx, events.VerbEnter, ask)
		switch errcode.Of(err) {
		case "":
			m.update(s)
			return s.Membership.Final()
		case errcode.Conflict, errcode.Invalid, errcode.Fenced:
			m.mu.Lock()
			m.err = err
			m.mu.Unlock()
			return true
		}
		pause := retry.Next()
		if err.Error() != logged && pause == retry.Max && ctx.Err() == nil {
			logged = err.Error()
			a.opt.Logger.Warn("the rendezvous has not taken this node in", "node", a.opt.Node, "job", j.Job, "reason", err)
		}
		wait.Sleep(ctx, pause)
	}
	return false
}

func (m *membership) call(ctx context.Context, verb string, ask events.Body) (events.NodeMembership, error) {
	ctx, cancel := context.WithTimeout(ctx, m.a.opt.Join.Spec.Rendezvous.HeartbeatTimeout.D())
	defer cancel()
	return call[events.NodeMembership](ctx, m.a, events.ServiceRendezvous, verb, ask, "")
}

// exit withdraws the node from the job, which continues without it, and gives its workers time to
// leave at a commit.
func (m *membership) exit(work context.Context) {
	a, j := m.a, m.a.opt.Join
	m.mu.Lock()
	in, was := m.in, m.was
	m.mu.Unlock()
	if !in {
		return
	}
	ctx, cancel := context.WithTimeout(work, j.Spec.Stop.Grace.D())
	defer cancel()
	ask := events.NodeExit{Job: j.Job, Node: a.opt.Node, Incarnation: a.opt.Incarnation, Reason: "its agent was asked to end"}
	for {
		s, err := m.call(ctx, events.VerbExit, ask)
		if err == nil {
			m.update(s)
			break
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			a.opt.Logger.Warn("the rendezvous did not hear that this node leaves", "node", a.opt.Node, "job", j.Job, "reason", err)
			return
		}
	}
	for was != "" && was != events.PhaseStop {
		select {
		case <-m.wake:
		case <-m.stopNow:
			return
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		was = m.was
		m.mu.Unlock()
	}
}
