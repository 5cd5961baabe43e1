package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
)

// agentStep is the agent's machine.
type agentStep func(worker.State, worker.Input, time.Time) (worker.State, []worker.Action)

// node is a machine with its agent and its processes.
type node struct {
	w     *world
	id    events.NodeID
	slots int
	up    bool
	cut   bool // from the control plane
	away  bool // gone for good
	life  int
	inc   events.Incarnation
	link  events.Link
	step  agentStep
	state worker.State
	procs map[events.Incarnation]*process
	facts []events.Message // to be stored, in order
	busy  bool             // a fact is on its way
	alarm time.Time
	disk  []worker.Orphaned // what the next life of the agent finds
	bye   bool              // it leaves once it is idle

	listed   events.HostEntry // what the host list says of it
	job      *jobRun          // nil = it takes what the scheduler gives it; else it comes to this one by itself
	asking   bool             // to be in it
	quitting bool             // it is leaving it

	mute, deaf bool                          // nothing leaves it, nothing reaches it, though it stays connected
	frozen     bool                          // the agent stands still; its workers go on
	backlog    []worker.Input                // what it will hear then
	misses     int                           // launches that will be lost on their way here
	warm       map[events.Slot]time.Duration // what the next process there needs until it joins
}

func newNode(w *world, id events.NodeID, slots int) *node {
	return &node{w: w, id: id, slots: slots, warm: map[events.Slot]time.Duration{}}
}

// boot starts the agent as a new incarnation.
func (n *node) boot() {
	if n.up || n.away {
		return
	}
	n.up, n.bye, n.busy, n.alarm, n.frozen, n.backlog = true, false, false, time.Time{}, false, nil
	n.asking, n.quitting = false, false
	n.life++
	n.inc = incarnation(n.w.now, n.life, string(n.id))
	if !n.cut {
		n.connect()
	}
	n.state = worker.New(worker.Config{Node: n.id, Agent: n.inc, Advertise: string(n.id) + ".test", Socket: "/sock", ErrorDir: "/err"})
	n.step = worker.Step
	if n.w.mutant.agent != nil {
		n.step = n.w.mutant.agent(worker.Step)
	}
	n.procs, n.facts = map[events.Incarnation]*process{}, nil
	n.w.say("%s: agent %s starts", n.id, n.inc[5:13])
	for _, o := range n.disk {
		n.input(o)
	}
	n.disk = nil
	n.hello(n.life)
	n.beat(n.life)
	n.catchUp()
}

// incarnation makes a ULID that sorts by time.
func incarnation(now time.Time, life int, node string) events.Incarnation {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := make([]byte, 26)
	v := uint64(now.UnixMilli())
	for i := 9; i >= 0; i-- {
		id[i] = digits[v&31]
		v >>= 5
	}
	sum := events.Token(node, fmt.Sprint(life))
	for i := 10; i < 26; i++ {
		id[i] = digits[(sum[i]-'0')&31]
	}
	return events.Incarnation(id)
}

// die takes the agent away with its processes, as a reboot or a kernel panic does. With its disk
// the next life knows what ran.
func (n *node) die(keepDisk bool) {
	if !n.up {
		return
	}
	n.w.say("%s: agent and processes are gone", n.id)
	n.up = false
	n.life++
	if !n.cut {
		n.disconnect()
	}
	for _, id := range slices.Sorted(maps.Keys(n.procs)) {
		p := n.procs[id]
		if !p.alive {
			continue
		}
		if keepDisk {
			n.disk = append(n.disk, worker.Orphaned{
				Job: p.start.Job, Place: p.start.Place, Attempt: p.start.Attempt,
				Worker: id, Generation: p.start.Generation, PID: p.pid,
			})
		}
		p.vanish()
	}
	if !keepDisk {
		n.disk = nil
	}
}

// input gives the machine something and does what it says.
func (n *node) input(in worker.Input) {
	if !n.up {
		return
	}
	if n.frozen {
		n.backlog = append(n.backlog, in)
		return
	}
	if j, ok := in.(worker.WorkerJoined); ok && n.procs[j.Worker] != nil {
		n.procs[j.Worker].heard = max(n.procs[j.Worker].heard, j.Request.Left)
	}
	var acts []worker.Action
	n.state, acts = n.step(n.state, in, n.w.now)
	for _, a := range acts {
		n.do(a)
	}
	n.setAlarm()
	n.leave()
}

// later is input after a while, to the same life of the agent.
func (n *node) later(d time.Duration, in worker.Input) {
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			n.input(in)
		}
	})
}

func (n *node) setAlarm() {
	at := worker.Deadline(n.state)
	if at.IsZero() || (!n.alarm.IsZero() && !at.Before(n.alarm)) {
		return
	}
	at = later(at, n.w.now.Add(time.Millisecond))
	n.alarm = at
	life := n.life
	n.w.at(at, func() {
		if n.life == life && n.alarm.Equal(at) {
			n.alarm = time.Time{}
			n.input(worker.Tick{})
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (n *node) hello(life int) {
	ask := events.NodeHello{Node: n.id, Incarnation: n.inc, Slots: n.offered(), Address: string(n.id) + ".test", Link: n.link}
	n.w.call(n, events.ServiceDiscovery, ask, func(_ events.Body, err error) {
		wait := 10 * time.Second
		if err != nil {
			wait = n.w.between(100*time.Millisecond, time.Second)
		} else {
			n.come(life)
		}
		n.w.after(wait, func() {
			if n.life == life && !n.bye {
				n.whenAwake(func() { n.hello(life) })
			}
		})
	})
}

func (n *node) beat(life int) {
	if n.life != life {
		return
	}
	if !n.cut && !n.mute && !n.frozen {
		n.w.heartbeat(events.Heartbeat{Node: n.id, Incarnation: n.inc, Slots: n.slots, Link: n.link, Revisions: n.state.Revisions()})
	}
	n.w.after(500*time.Millisecond, func() { n.beat(life) })
}

// cutOff ends or restores the way to the control plane.
func (n *node) cutOff(cut bool) {
	if n.cut == cut {
		return
	}
	n.cut = cut
	n.w.say("%s: cut off from the control plane: %t", n.id, cut)
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

// back is a connection that stands again.
func (n *node) back(is bool) {
	if is && n.up && !n.cut && !n.mute && !n.deaf {
		n.whenAwake(func() { n.hello(n.life) })
		n.catchUp()
		n.store()
	}
}

// freeze lets the agent stand still for a while. Its processes go on, and it hears afterwards what
// came meanwhile.
func (n *node) freeze(d time.Duration) {
	if !n.up || n.frozen {
		return
	}
	n.frozen = true
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			n.thaw()
		}
	})
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

// whenAwake does now what a frozen agent does once it goes on.
func (n *node) whenAwake(do func()) {
	if !n.frozen {
		do()
		return
	}
	life := n.life
	n.w.after(50*time.Millisecond, func() {
		if n.life == life {
			n.whenAwake(do)
		}
	})
}

// catchUp reads the last launch of every job.
func (n *node) catchUp() {
	last := n.w.store.streams[events.StreamLaunches].last
	for _, s := range slices.Sorted(maps.Keys(last)) {
		var l events.Launch
		if json.Unmarshal(last[s].Data, &l) == nil && l.Node == n.id {
			n.w.after(n.w.hop(), func() { n.hear(last[s]) })
		}
	}
}

func (n *node) hear(m events.Stored) {
	var l events.Launch
	if n.up && !n.cut && !n.deaf && json.Unmarshal(m.Data, &l) == nil {
		n.input(worker.Launched{Launch: l})
		if n.job != nil && l.Job == n.job.id && l.Phase == events.PhaseStop {
			n.come(n.life)
		}
	}
}

func (n *node) noticed(b events.NoticeEnvelope) {
	if !n.up || n.cut || n.deaf {
		return
	}
	here := n.state.Revisions()
	switch {
	case b.Notice != nil && b.Notice.Exited.Agent != n.inc && here[b.Notice.Exited.Job] > 0:
		n.input(worker.NoticeHeard{Notice: *b.Notice})
	case b.Abandon != nil && here[b.Abandon.Job] > 0:
		n.input(worker.AbandonHeard{Abandon: *b.Abandon})
	}
}

// leave says goodbye once everything has ended and is told.
func (n *node) leave() {
	if !n.bye || !n.state.Idle() || len(n.facts) > 0 {
		return
	}
	n.bye = false
	life := n.life
	bye := events.NodeLeave{Node: n.id, Incarnation: n.inc, Reason: "the agent was stopped"}
	n.w.call(n, events.ServiceDiscovery, bye, func(events.Body, error) {
		if n.life == life {
			n.die(false)
		}
	})
}
