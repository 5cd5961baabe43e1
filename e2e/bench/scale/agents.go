package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/regroup-io/regroup/e2e/cluster"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream"
)

const (
	slots       = 8
	connections = 6                      // shared by all agents
	heartbeat   = 500 * time.Millisecond // the agents' default
	hello       = 10 * time.Second       // as are these
	rejoin      = 5 * time.Second        // the agent's interval for repeating an accepted join
	retry       = time.Second
	call        = 2 * time.Second
)

// fleet is all simulated agents.
type fleet struct {
	conns  []*cluster.Client
	agents []*agent
	tasks  sync.WaitGroup
	stop   context.CancelFunc

	watch atomic.Pointer[watch]
}

// watch waits until every agent has received something.
type watch struct {
	job    ident.JobID
	missed atomic.Int64
	done   chan time.Time // the time of the last one
	seen   sync.Map       // nodes that have it
}

func (w *watch) got(n ident.NodeID) {
	if _, twice := w.seen.LoadOrStore(n, true); twice {
		return
	}
	if w.missed.Add(-1) == 0 {
		w.done <- time.Now()
	}
}

// wait returns the time at which the last agent has received it. An error says what some have not.
func (w *watch) wait(ctx context.Context, what string) (time.Time, error) {
	select {
	case at := <-w.done:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("%d agents %s: %w", w.missed.Load(), what, context.Cause(ctx))
	}
}

// agent is one node.
type agent struct {
	fleet       *fleet
	ports       broker.Ports
	node        ident.NodeID
	incarnation ident.Incarnation
	host        string
	made        int

	mu   sync.Mutex
	held map[ident.JobID]uint64
	gen  map[ident.JobID]ident.Generation
	last map[ident.JobID]events.MemberJoins // those for gen: a repeated prepare leads to the same requests
	here atomic.Bool                        // discovery has registered it
	mute atomic.Bool                        // it sends nothing any more: its machine has failed

	interval atomic.Pointer[events.NodeWelcome] // set by discovery
	beaten   time.Time                          // last heartbeat; the heartbeats' goroutine owns it
	greeted  atomic.Int64                       // last hello, in ns of Unix time
	greeting atomic.Bool                        // a hello is in flight
	renewing atomic.Bool                        // asks for its lease
}

// launch is the part of a launch that an agent needs; the rest is for the processes that it would
// start.
type launch struct {
	Job        ident.JobID      `json:"job"`
	Revision   uint64           `json:"revision"`
	Phase      events.Phase     `json:"phase"`
	Generation ident.Generation `json:"generation"`
	Via        string           `json:"via"`
	Members    []struct {
		Place   ident.Place `json:"place"`
		Attempt int         `json:"attempt"`
		Rank    ident.Rank  `json:"rank"`
	} `json:"members"`
}

// gather starts n agents and returns when discovery has registered all of them.
func gather(ctx context.Context, url string, n int) (*fleet, error) {
	ctx, stop := context.WithCancel(ctx)
	c := &fleet{stop: stop}
	for i := range connections {
		conn, err := cluster.Connect(ctx, jetstream.ConnectOptions{URL: url, Name: fmt.Sprintf("agents-%d", i)}, os.Stderr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	for i := range n {
		c.agents = append(c.agents, &agent{
			fleet: c, ports: c.conns[i%connections].Ports, node: ident.NodeID(fmt.Sprintf("node-%04d", i)),
			incarnation: ident.Incarnation(ulid.Make().String()), host: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), held: map[ident.JobID]uint64{},
			gen: map[ident.JobID]ident.Generation{}, last: map[ident.JobID]events.MemberJoins{},
		})
	}
	for i := range connections {
		c.tasks.Go(func() { c.heartbeats(ctx, i) })
	}
	// A few at a time: that many machines do not boot at the same instant, and the measurement
	// comes later.
	greeting := make(chan *agent)
	failed := make(chan error, n)
	var greeted sync.WaitGroup
	for range 16 {
		greeted.Go(func() {
			for a := range greeting {
				a.listen(ctx)
				failed <- a.hello(ctx)
			}
		})
	}
	for _, a := range c.agents {
		greeting <- a
	}
	close(greeting)
	greeted.Wait()
	for range n {
		if err := <-failed; err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *fleet) close() {
	c.stop()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.tasks.Wait()
}

// expect starts a watch for an event that all agents but some will receive.
func (c *fleet) expect(job ident.JobID, but int) *watch {
	w := &watch{job: job, done: make(chan time.Time, 1)}
	w.missed.Store(int64(len(c.agents) - but))
	c.watch.Store(w)
	return w
}

// heartbeats sends the heartbeats of a connection's agents, spread over the period.
func (c *fleet) heartbeats(ctx context.Context, conn int) {
	var mine []*agent
	for i := conn; i < len(c.agents); i += connections {
		mine = append(mine, c.agents[i])
	}
	const parts = 25
	tick := time.NewTicker(heartbeat / parts)
	defer tick.Stop()
	for part := 0; ; part = (part + 1) % parts {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := part; i < len(mine); i += parts {
			mine[i].beat(ctx, time.Now())
		}
	}
}

// beat sends a heartbeat, and a hello, if they are due by the intervals that discovery has set.
func (a *agent) beat(ctx context.Context, now time.Time) {
	if a.mute.Load() || !a.here.Load() { // a registered node has its interval
		return
	}
	interval := a.interval.Load()
	if now.Sub(a.beaten) < interval.Heartbeat.D()-heartbeat/2 {
		return
	}
	a.beaten = now
	if now.Sub(time.Unix(0, a.greeted.Load())) > max(hello, interval.Hello.D()) && a.greeting.CompareAndSwap(false, true) {
		a.fleet.tasks.Go(func() { defer a.greeting.Store(false); _ = a.hello(ctx) })
	}
	h := events.Heartbeat{Node: a.node, Incarnation: a.incarnation, Slots: slots, Revisions: map[ident.JobID]uint64{}}
	a.mu.Lock()
	for j, r := range a.held {
		h.Revisions[j] = r
	}
	a.mu.Unlock()
	if data, err := bodies.Encode(h); err == nil {
		_ = a.ports.Signals.Send(events.HeartbeatSubject(a.node), data)
	}
	if a.renewing.CompareAndSwap(false, true) {
		a.fleet.tasks.Go(func() { defer a.renewing.Store(false); a.renew(ctx) })
	}
}

// renew asks for the agent's lease, as often as a real one does.
func (a *agent) renew(ctx context.Context) {
	_, _ = a.call(ctx, call, events.RequestSubject(events.ServiceDiscovery, events.VerbRenew), events.LeaseRenew{Node: a.node, Incarnation: a.incarnation})
}

// call sends a request and returns the answer within a time.
func (a *agent) call(ctx context.Context, within time.Duration, subject string, b events.Body) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	data, err := bodies.Encode(b)
	if err != nil {
		return nil, err
	}
	return a.ports.Calls.Call(ctx, subject, data)
}

func (a *agent) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ask := events.NodeHello{Node: a.node, Incarnation: a.incarnation, Slots: slots, Address: a.host}
	return cluster.Until(ctx, func() (bool, error) {
		answer, err := a.call(ctx, call, events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), ask)
		if err != nil {
			return false, err
		}
		w, err := bodies.Decode[events.NodeWelcome](answer)
		if err != nil {
			return false, err
		}
		a.interval.Store(&w)
		a.greeted.Store(time.Now().UnixNano())
		a.here.Store(true)
		return true, nil
	})
}

// settled reports whether all agents have the same heartbeat interval: the first ones learn the
// fleet's size at their next hello.
func (c *fleet) settled() bool {
	for _, a := range c.agents {
		if a.interval.Load().Heartbeat != c.agents[len(c.agents)-1].interval.Load().Heartbeat {
			return false
		}
	}
	return true
}

// listen subscribes as the real agent does.
func (a *agent) listen(ctx context.Context) {
	w := &a.fleet.tasks
	w.Go(func() {
		_ = a.ports.Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject(a.node, "*"), func(m broker.Stored) { a.launched(ctx, m.Data) })
	})
	w.Go(func() {
		_ = a.ports.Signals.Hear(ctx, events.AllNotices, "", func(_ string, data []byte) { a.noticed(data) }, nil)
	})
	w.Go(func() {
		_ = a.ports.Calls.Serve(ctx, events.AgentSubject(a.node, events.VerbPing), "", func(context.Context, []byte) ([]byte, error) {
			if a.mute.Load() {
				return nil, errcode.Errorf(errcode.Unavailable, "it is dead")
			}
			return bodies.Encode(events.Pong{Node: a.node, Incarnation: a.incarnation})
		})
	})
}

func (a *agent) noticed(data []byte) {
	w := a.fleet.watch.Load()
	if w == nil || a.mute.Load() {
		return
	}
	var e struct {
		Notice *struct {
			Exited struct {
				Job ident.JobID `json:"job"`
			} `json:"exited"`
		} `json:"notice"`
		Abandon *struct {
			Job ident.JobID `json:"job"`
		} `json:"abandon"`
	}
	if json.Unmarshal(data, &e) != nil {
		return
	}
	if (e.Notice != nil && e.Notice.Exited.Job == w.job) || (e.Abandon != nil && e.Abandon.Job == w.job) {
		w.got(a.node)
	}
}

func (a *agent) launched(ctx context.Context, data []byte) {
	var l launch
	if json.Unmarshal(data, &l) != nil || a.mute.Load() {
		return
	}
	a.mu.Lock()
	old := l.Revision <= a.held[l.Job]
	if !old {
		a.held[l.Job] = l.Revision
	}
	a.mu.Unlock()
	if old {
		return
	}
	switch l.Phase {
	case events.PhasePrepare:
		joins := a.joins(l)
		a.fleet.tasks.Go(func() { a.join(ctx, l, joins) })
	case events.PhaseRun:
		if w := a.fleet.watch.Load(); w != nil && w.job == l.Job && ranked(l) {
			w.got(a.node)
		}
	case events.PhaseStop:
	}
}

// ranked reports whether every worker of the node has its rank.
func ranked(l launch) bool {
	for _, m := range l.Members {
		if m.Rank < 0 {
			return false
		}
	}
	return len(l.Members) > 0
}

// joins returns the join requests of the processes to start, named as by the real agent.
func (a *agent) joins(l launch) events.MemberJoins {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gen[l.Job] == l.Generation {
		return a.last[l.Job]
	}
	all := events.MemberJoins{Job: l.Job}
	now := ulid.Make().String()[:10]
	for _, m := range l.Members {
		a.made++
		all.Joins = append(all.Joins, events.MemberJoin{
			Job: l.Job, Place: m.Place, Incarnation: ident.Incarnation(fmt.Sprintf("%s%05d%s", now, a.made, a.incarnation[15:])), Agent: a.incarnation, Attempt: m.Attempt,
			Address: fmt.Sprintf("%s:%d", a.host, 32768+(a.made*7919+int(m.Place.Slot)*104729)%28000), Left: l.Generation - 1,
		})
	}
	a.gen[l.Job], a.last[l.Job] = l.Generation, all
	return all
}

// join repeats the requests until there is a reply or a newer launch.
func (a *agent) join(ctx context.Context, l launch, all events.MemberJoins) {
	limit, pause, via := a.interval.Load().Patience.D(), 50*time.Millisecond, true
	for {
		var err error
		if via {
			_, err = a.call(ctx, max(call/2, limit), events.ReplicaSubject(events.ServiceRendezvous, events.VerbJoins, l.Via), all)
			via = err == nil
		}
		if !via {
			_, err = a.call(ctx, max(call, limit), events.RequestSubject(events.ServiceRendezvous, events.VerbJoins), all)
		}
		if err == nil {
			pause = rejoin
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, retry)
		a.mu.Lock()
		over := a.held[l.Job] != l.Revision
		a.mu.Unlock()
		if over {
			return
		}
	}
}
