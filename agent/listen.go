package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/statedir"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
)

// listen starts the permanent subscriptions and senders.
func (a *Agent) listen(work context.Context) {
	keepRunning := func(what string, f func() error) {
		a.tasks.Go(func() error {
			for work.Err() == nil {
				if err := f(); err != nil && work.Err() == nil {
					a.opt.Logger.Warn(what+" was interrupted and begins again", "node", a.opt.Node, "reason", err)
					wait.Sleep(work, a.opt.Config.Heartbeat)
				}
			}
			return nil
		})
	}
	p, n := a.opt.Ports, a.opt.Node
	keepRunning("hearing launches", func() error {
		return p.Signals.Launches(work, events.StreamLaunches, events.LaunchSubject(n, "*"), a.launch)
	})
	keepRunning("hearing notices", func() error {
		return p.Signals.Hear(work, events.AllNotices, "", func(_ string, data []byte) { a.notice(data) }, nil)
	})
	keepRunning("answering pings", func() error {
		return p.Calls.Serve(work, events.AgentSubject(n, events.VerbPing), "", func(context.Context, []byte) ([]byte, error) {
			return bodies.Encode(events.Pong{Node: n, Incarnation: a.opt.Incarnation, Link: p.Links.Own()})
		})
	})
	first := true // this report wakes nobody: the node enters its job on this connection anyway
	keepRunning("watching the connection", func() error {
		return p.Signals.Watch(work, func(connected bool) {
			if connected {
				a.endIfMoved()
				wait.Notify(a.hello)
				a.heartbeat()
				if a.member != nil && !first {
					wait.Notify(a.member.wake)
				}
			}
			first = false
		})
	})
	if a.member != nil {
		keepRunning("hearing who else comes", func() error {
			return p.Signals.Hear(work, events.RendezvousStatusSubject(a.opt.Join.Job), "", func(_ string, data []byte) { a.member.gathered(data) }, nil)
		})
	}
	if a.opt.WatchGPUs != nil {
		a.tasks.Go(func() error { a.opt.WatchGPUs(work, a.gpusSeen); return nil })
	}
	a.tasks.Go(func() error { a.register(work); return nil })
	a.tasks.Go(func() error { a.heartbeats(work); return nil })
	a.tasks.Go(func() error { a.reportUsage(work); return nil })
	a.tasks.Go(func() error { a.expireKept(work); return nil })
	a.tasks.Go(func() error { a.lease.run(work); return nil })
	a.tasks.Go(func() error { return a.lease.watchOutage(work) })
}

func (a *Agent) launch(m broker.Stored) {
	l, err := bodies.Decode[events.Launch](m.Data)
	if err != nil {
		a.opt.Logger.Error("launch not understood: is this agent older than the services?", "node", a.opt.Node, "reason", err)
		return
	}
	a.inputs.put(worker.Launched{Launch: l})
	if l.JobEnds { // none of its workers starts any more
		a.forgetJob(l.Job, l.Spec.Processes.SubmitEnvironment)
	}
	if a.member != nil {
		a.member.launched(l)
	}
}

// notice handles what others say about jobs of this node: an agent that one of its workers has
// exited, or the rendezvous that a generation is to be abandoned.
func (a *Agent) notice(data []byte) {
	e, err := bodies.Decode[events.NoticeEnvelope](data)
	if err != nil {
		a.opt.Logger.Debug("notice not understood", "reason", err)
		return
	}
	here := a.snapshot.Load().revisions // of launches, by the jobs that have one here
	switch {
	case e.Notice != nil && e.Notice.Exited.Agent != a.opt.Incarnation && here[e.Notice.Exited.Job] > 0:
		a.inputs.put(worker.NoticeHeard{Notice: *e.Notice})
	case e.Abandon != nil && here[e.Abandon.Job] > 0:
		a.inputs.put(worker.AbandonHeard{Abandon: *e.Abandon})
	}
}

// quietFor is how long discovery may be absent without a warning: services and agents are started
// together.
const quietFor = 3 * time.Second

// register says hello until it is answered, then periodically, in case discovery has lost the node.
func (a *Agent) register(work context.Context) {
	retry, logged, since := wait.Backoff{First: 100 * time.Millisecond, Max: 2 * time.Second}, "", time.Time{}
	var once sync.Once
	offered := a.opt.Slots // to the scheduler: none if the agent joins a single job
	if a.member != nil {
		offered = 0
	}
	measured := a.measure(work)
	a.greeting.Store(true)
	for work.Err() == nil {
		h := events.NodeHello{
			Node: a.opt.Node, Incarnation: a.opt.Incarnation, Slots: offered, Address: a.opt.Advertise, Link: a.opt.Ports.Links.Own(),
			Version: a.opt.Version, GPUs: *a.gpus.Load(), Spares: a.snapshot.Load().spares, Preflight: measured, Departing: a.departing.Load(), Predecessors: a.predecessors,
		}
		pause := helloEvery
		if w, err := call[events.NodeWelcome](work, a, events.ServiceDiscovery, events.VerbJoin, h, ""); err != nil {
			if errcode.Of(err) == errcode.Fenced && work.Err() == nil {
				a.replaced(err)
				return
			}
			pause = retry.Next()
			if since.IsZero() {
				since = time.Now()
			}
			level := slog.LevelDebug
			if starting := errcode.Of(err) == errcode.Unavailable && time.Since(since) < quietFor; !starting && err.Error() != logged {
				level, logged = slog.LevelWarn, err.Error()
			}
			if work.Err() == nil {
				a.opt.Logger.Log(work, level, "discovery has not taken this node in", "node", a.opt.Node, "reason", err)
			}
		} else {
			retry.Reset()
			logged, since = "", time.Time{}
			pause = max(pause, w.Hello.D())
			a.beat.Store(int64(w.Heartbeat.D()))
			a.patience.Store(int64(w.Patience.D()))
			a.lease.welcomed(w)
			a.heartbeat()
			once.Do(func() {
				close(a.known)
				if err := statedir.Admitted(a.opt.StateDir, a.opt.Incarnation); err != nil {
					a.opt.Logger.Debug("the state folder keeps its earlier agents", "node", a.opt.Node, "reason", err)
				}
			})
			a.departureKnown(h)
		}
		select {
		case <-time.After(pause):
		case <-a.hello:
		case <-a.spares: // several become ready together
			select {
			case <-time.After(pause / 20):
			case <-a.hello:
			case <-work.Done():
			}
		case <-work.Done():
		}
	}
}

// gpusSeen takes the state of the GPUs. The next hello has it; a fault does not wait for that.
func (a *Agent) gpusSeen(seen []devices.GPU, fault bool) {
	a.gpus.Store(&seen)
	if fault {
		for i, g := range seen {
			if g.Fault != nil {
				a.opt.Logger.Warn("a GPU is at fault", "node", a.opt.Node, "gpu", g.ID, "number", i, "reason", g.Fault.Reason)
			}
		}
		wait.Notify(a.hello)
	}
}

// heartbeat sends a heartbeat, and wakes the renewal of the lease: a lease counts from a heartbeat,
// because every replica of discovery hears these.
func (a *Agent) heartbeat() {
	a.send(events.HeartbeatSubject(a.opt.Node), events.Heartbeat{
		Node: a.opt.Node, Incarnation: a.opt.Incarnation, Slots: a.opt.Slots, Link: a.opt.Ports.Links.Own(),
		Revisions: a.snapshot.Load().revisions,
	})
	wait.Notify(a.renew)
}

// heartbeats sends heartbeats at the configured interval, or the longer one that discovery asks
// for.
func (a *Agent) heartbeats(work context.Context) {
	every := a.opt.Config.Heartbeat
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		a.heartbeat()
		if now := a.heartbeatInterval(); now != every {
			every = now
			t.Reset(every)
		}
		select {
		case <-t.C:
		case <-work.Done():
			return
		}
	}
}

// heartbeatInterval returns the configured interval, or the longer one that discovery asks for.
// That one begins with the first lease, which may have to wait for a heartbeat.
func (a *Agent) heartbeatInterval() time.Duration {
	if !a.lease.granted() {
		return a.opt.Config.Heartbeat
	}
	return max(a.opt.Config.Heartbeat, time.Duration(a.beat.Load()))
}
