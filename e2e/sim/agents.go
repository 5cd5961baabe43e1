package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
)

// agentStep is the agent's transition function.
type agentStep func(worker.State, worker.Input, time.Time) (worker.State, []worker.Action)

// node is a machine with its agent and its processes.
type node struct {
	w            *world
	id           ident.NodeID
	slots        int
	up           bool
	cut          bool // from the control plane
	away         bool // gone for good
	incarnation  int
	agent        ident.Incarnation
	link         broker.Link
	step         agentStep
	state        worker.State
	procs        map[ident.Incarnation]*process
	facts        []broker.Message // to be stored, in order
	busy         bool             // a publication is in flight
	timer        time.Time
	disk         []worker.Orphaned // what the agent's next incarnation finds
	leaving      bool              // it leaves as soon as it is idle
	lease        leased
	predecessors []ident.Incarnation // that had the same state folder before, until one was admitted

	listed   events.HostEntry // what the host list says of it
	job      *jobRun          // nil = the scheduler assigns its slots; otherwise it registers itself for this job
	asking   bool             // a request to enter the job is in flight
	welcome  bool             // discovery has taken this incarnation in
	quitting bool             // it is leaving the job

	mute, deaf bool                         // one-way partitions: nothing is sent, nothing is received, and the connection stays open
	frozen     bool                         // the agent is paused; its workers run on
	backlog    []worker.Input               // the inputs to apply when it resumes
	misses     int                          // how many of the next launches are lost in transit
	startDelay map[ident.Slot]time.Duration // the time that the next process in a slot takes until it joins
}

func newNode(w *world, id ident.NodeID, slots int) *node {
	return &node{w: w, id: id, slots: slots, startDelay: map[ident.Slot]time.Duration{}}
}

// boot starts a new incarnation of the agent.
func (n *node) boot() {
	if n.up || n.away {
		return
	}
	n.up, n.leaving, n.busy, n.timer, n.frozen, n.backlog = true, false, false, time.Time{}, false, nil
	n.asking, n.quitting, n.welcome = false, false, false
	n.incarnation++
	n.agent = newIncarnation(n.w.now, n.incarnation, string(n.id))
	if !n.cut {
		n.connect()
	}
	n.state = worker.New(worker.Config{Node: n.id, Agent: n.agent, Host: workerenv.Host{Advertise: string(n.id) + ".test", Socket: "/sock", ErrorDir: "/err"}})
	n.step = worker.Step
	if n.w.mutant.agent != nil {
		n.step = n.w.mutant.agent(worker.Step)
	}
	n.procs, n.facts = map[ident.Incarnation]*process{}, nil
	n.w.logf("%s: agent %s starts", n.id, n.agent[5:13])
	for _, o := range n.disk {
		n.input(o)
	}
	n.disk = nil
	n.lease = leased{}
	c := n.w.discoveryConfig()
	n.grant(n.w.now, c.Lease, c.LeaseInPlace)
	n.hello()
	n.beat()
	n.renew()
	n.guard()
	n.catchUp()
}

// living yields the processes that live, in a fixed order.
func (n *node) living(yield func(*process) bool) {
	for _, id := range slices.Sorted(maps.Keys(n.procs)) {
		if p := n.procs[id]; p.alive && !yield(p) {
			return
		}
	}
}

// nodeOf returns the node with an id; nil if there is none.
func (w *world) nodeOf(id ident.NodeID) *node {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.id == id })
	if i < 0 {
		return nil
	}
	return w.nodes[i]
}

// newIncarnation makes a ULID that sorts by time.
func newIncarnation(now time.Time, incarnation int, node string) ident.Incarnation {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := make([]byte, 26)
	v := uint64(now.UnixMilli())
	for i := 9; i >= 0; i-- {
		id[i] = digits[v&31]
		v >>= 5
	}
	sum := ident.Token(node, fmt.Sprint(incarnation))
	for i := 10; i < 26; i++ {
		id[i] = digits[(sum[i]-'0')&31]
	}
	return ident.Incarnation(id)
}

// die stops the agent with its processes, as a reboot or a kernel panic does. If it keeps its disk,
// the next incarnation knows which processes ran.
func (n *node) die(keepDisk bool) {
	if !n.up {
		return
	}
	n.w.logf("%s: agent and processes are gone", n.id)
	n.up = false
	n.incarnation++
	if !n.cut {
		n.disconnect()
	}
	for p := range n.living {
		if keepDisk {
			n.disk = append(n.disk, worker.Orphaned{
				Job: p.start.Job, Place: p.start.Place, Attempt: p.start.Attempt,
				Worker: p.start.Worker, Generation: p.start.Generation, PID: p.pid,
			})
		}
		p.endedWithAgent = true
		p.vanish()
	}
	n.predecessors = append(n.predecessors, n.agent)
	if !keepDisk {
		n.disk, n.predecessors = nil, nil
	}
}

// restart reboots the machine.
func (n *node) restart(keepDisk bool, d time.Duration) {
	n.die(keepDisk)
	n.w.after(d, n.boot)
}

// lose loses the machine for good.
func (n *node) lose() {
	n.die(false)
	n.away = true
}

// input applies an input to the machine and executes its actions.
func (n *node) input(in worker.Input) {
	if !n.up {
		return
	}
	if n.frozen {
		n.backlog = append(n.backlog, in)
		return
	}
	if j, ok := in.(worker.WorkerJoined); ok && n.procs[j.Worker] != nil {
		n.procs[j.Worker].leftReported = max(n.procs[j.Worker].leftReported, j.Request.Left)
	}
	var actions []worker.Action
	n.state, actions = n.step(n.state, in, n.w.now)
	for _, a := range actions {
		n.do(a)
	}
	n.setTimer()
	n.leave()
}

// after calls do later if the agent's incarnation is still the same.
func (n *node) after(d time.Duration, do func()) {
	incarnation := n.incarnation
	n.w.after(d, func() {
		if n.incarnation == incarnation {
			do()
		}
	})
}

// later applies an input later.
func (n *node) later(d time.Duration, in worker.Input) { n.after(d, func() { n.input(in) }) }

func (n *node) setTimer() {
	at := worker.Deadline(n.state)
	if at.IsZero() || (!n.timer.IsZero() && !at.Before(n.timer)) {
		return
	}
	if soonest := n.w.now.Add(time.Millisecond); at.Before(soonest) {
		at = soonest
	}
	n.timer = at
	incarnation := n.incarnation
	n.w.at(at, func() {
		if n.incarnation == incarnation && n.timer.Equal(at) {
			n.timer = time.Time{}
			n.input(worker.Tick{})
		}
	})
}

func (n *node) hello() {
	ask := events.NodeHello{Node: n.id, Incarnation: n.agent, Slots: n.offered(), Address: string(n.id) + ".test", Link: n.link, GPUs: n.gpus(), Predecessors: n.predecessors}
	n.w.call(n, events.ServiceDiscovery, ask, func(b events.Body, err error) {
		if w, ok := b.(events.NodeWelcome); ok && err == nil {
			n.welcome = true
			n.lostBefore(w.TimesLost)
			n.askLease()
		}
		wait := 10 * time.Second
		if err != nil {
			wait = n.w.between(100*time.Millisecond, time.Second)
		} else {
			n.come()
		}
		n.after(wait, func() {
			if !n.leaving {
				n.whenAwake(n.hello)
			}
		})
	})
}

func (n *node) beat() {
	if !n.cut && !n.mute && !n.frozen {
		n.w.heartbeat(events.Heartbeat{Node: n.id, Incarnation: n.agent, Slots: n.slots, Link: n.link, Revisions: n.state.Revisions()})
	}
	n.after(500*time.Millisecond, n.beat)
}

// cutOff starts or ends a partition from the control plane.
func (n *node) cutOff(cut bool) {
	if n.cut == cut {
		return
	}
	n.cut = cut
	n.w.logf("%s: cut off from the control plane: %t", n.id, cut)
	switch {
	case !n.up:
	case cut:
		n.disconnect()
	default:
		n.connect()
	}
	n.back(!cut)
}

func (n *node) setMute(mute bool) {
	n.mute = mute
	n.back(!mute)
}

func (n *node) setDeaf(deaf bool) {
	n.deaf = deaf
	n.back(!deaf)
}

// back handles the end of a partition.
func (n *node) back(is bool) {
	if is && n.up && !n.cut && !n.mute && !n.deaf {
		n.whenAwake(n.hello)
		n.catchUp()
		n.store()
	}
}

// freeze pauses the agent for d. Its processes run on, and its inputs are queued.
func (n *node) freeze(d time.Duration) {
	if !n.up || n.frozen {
		return
	}
	n.frozen = true
	n.after(d, n.thaw)
}

func (n *node) thaw() {
	n.frozen = false
	late := n.backlog
	n.backlog = nil
	for _, in := range late {
		n.input(in)
	}
	n.store()
}

// whenAwake calls do now, or when a frozen agent has resumed.
func (n *node) whenAwake(do func()) {
	if !n.frozen {
		do()
		return
	}
	n.after(50*time.Millisecond, func() { n.whenAwake(do) })
}

// catchUp reads the last launch of each job.
func (n *node) catchUp() {
	for _, s := range slices.Sorted(maps.Keys(n.w.launches)) {
		var l events.Launch
		if json.Unmarshal(n.w.launches[s].Data, &l) == nil && l.Node == n.id {
			n.w.after(n.w.hop(), func() { n.receiveLaunch(n.w.launches[s]) })
		}
	}
}

func (n *node) receiveLaunch(m broker.Stored) {
	var l events.Launch
	if n.up && !n.cut && !n.deaf && json.Unmarshal(m.Data, &l) == nil {
		n.input(worker.Launched{Launch: l})
		if n.job != nil && l.Job == n.job.id && l.Phase == events.PhaseStop {
			n.come()
		}
	}
}

func (n *node) noticed(b events.NoticeEnvelope) {
	if !n.up || n.cut || n.deaf {
		return
	}
	here := n.state.Revisions()
	switch {
	case b.Notice != nil && b.Notice.Exited.Agent != n.agent && here[b.Notice.Exited.Job] > 0:
		n.input(worker.NoticeHeard{Notice: *b.Notice})
	case b.Abandon != nil && here[b.Abandon.Job] > 0:
		n.input(worker.AbandonHeard{Abandon: *b.Abandon})
	}
}

// leave deregisters the node after all processes have ended and all facts are published.
func (n *node) leave() {
	if !n.leaving || !n.state.Idle() || len(n.facts) > 0 {
		return
	}
	n.leaving = false
	goodbye := events.NodeLeave{Node: n.id, Incarnation: n.agent, Reason: "the agent was stopped"}
	n.w.call(n, events.ServiceDiscovery, goodbye, func(events.Body, error) { n.die(false) }) // an answer is to the same incarnation
}

// connect gives a node's agent a new connection to the broker.
func (n *node) connect() {
	n.w.made++
	count := n.link.Count + 1
	if n.link.Server != string(n.agent) {
		count = 1
	}
	// The server's id is the agent's incarnation, so that a count belongs to one incarnation.
	n.link = broker.Link{Server: string(n.agent), Client: uint64(n.w.made), Count: count}
}

// disconnect ends it. The broker notices soon, or by its pings if the network is cut; discovery may
// miss its event.
func (n *node) disconnect() {
	after := n.w.hop()
	if n.w.chance(20) {
		after += n.w.between(time.Second, 12*time.Second)
	}
	l := broker.Link{Server: n.link.Server, Client: n.link.Client}
	for _, s := range n.w.services[events.ServiceDiscovery] {
		if !n.w.chance(2 * n.w.sc.loss) {
			n.w.after(after+n.w.hop(), func() { s.signal(l) })
		}
	}
}
