package round

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// External is the rendezvous of the nodes of a job that nobody places. State, decisions and actions are those of
// TorchElastic's dynamic rendezvous (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), made by one judge instead of
// by every node: a node that has entered is decided for until it is out, so nobody polls, and times are the judge's own.
//
//	          enter                          min reached, last call over; or max reached
//	(none) ─────────► forming, participants ────────────────────────────────────────────► complete
//	                     ▲ complete, room: wait list ──► after elastic.settle ──┐             │
//	                     │ complete, full: spares    ──► a member is lost ──────┤             │
//	                     └───────────────── next round: survivors first ◄───────┴─────────────┘
type External struct {
	Round    int       `json:"round"`
	Complete bool      `json:"complete,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"` // forming: end of the last call
	Settle   time.Time `json:"settle,omitzero"`   // complete: those who wait are taken in
	Closed   string    `json:"closed,omitempty"`  // why nobody is taken in any more
	Comers   []Comer   `json:"comers,omitempty"`  // in order of arrival
	EmptyBy  time.Time `json:"empty_by,omitzero"` // nobody is in any list, and no generation was sealed: the job is given up then

	Abandoned bool `json:"abandoned,omitempty"` // it was

	Out  map[events.NodeID]Outcast            `json:"out,omitempty"`  // what became of those who are in no list any more
	Lost map[events.NodeID]events.Incarnation `json:"lost,omitempty"` // by discovery's verdict, not taken back yet
}

// list is where a node is: nobody is in two.
type list string

const (
	participant list = "participant"
	waiting     list = "waiting"
	spare       list = "spare" // upstream's redundancy list
	outside     list = ""      // has just entered
)

// Comer is a node in one of the lists.
type Comer struct {
	Node   events.NodeID      `json:"node"`
	Agent  events.Incarnation `json:"agent"`
	List   list               `json:"list,omitempty"`
	By     time.Time          `json:"by,omitzero"`     // its round must be complete; zero = it has no such wait
	Silent time.Time          `json:"silent,omitzero"` // discovery suspects it: expires then
}

// Outcast is a node that is out for good, in this life.
type Outcast struct {
	Agent    events.Incarnation `json:"agent"`
	Standing events.Membership  `json:"standing"`
	Reason   string             `json:"reason"`
}

// rollback is upstream's: how late after its join deadline a node may still be withdrawn. A judge that comes later than that
// was away itself, and time in which nobody judged does not count.
const rollback = 5 * time.Second

// op is what is to be done with a node; upstream's names.
type op string

const (
	opFinish             op = "FINISH"
	opSync               op = "SYNC" // wait for the launch
	opAddParticipant     op = "ADD_TO_PARTICIPANTS"
	opAddWaiting         op = "ADD_TO_WAIT_LIST"
	opAddSpare           op = "ADD_TO_REDUNDANCY_LIST"
	opRemoveParticipant  op = "REMOVE_FROM_PARTICIPANTS"
	opRemoveWaiting      op = "REMOVE_FROM_WAIT_LIST"
	opRemoveSpare        op = "REMOVE_FROM_REDUNDANCY_LIST"
	opComplete           op = "MARK_RENDEZVOUS_COMPLETE"
	opErrorClosed        op = "ERROR_CLOSED"
	opGracefulExit       op = "RendezvousGracefulExitError"
	opExtend             op = "EXTEND" // ours: the judge was away
	opExpire             op = "EXPIRE" // what upstream calls sanitise
	opKeepAliveExtension op = "KEEP_ALIVE"
)

// joinOp is upstream's join op; the numbers are its rows. Where we differ:
//   - 5 comes before 2: closing keeps others out and ends nobody's work;
//   - 11 comes before 6: who waited for a last call that is over is in, even if the judge was late;
//   - 8 is no error: the judge was away. 13 needs no write: see expiry.
func (x *External) joinOp(c Comer, r spec.Rendezvous, now time.Time) op {
	n := x.count(participant)
	past := !x.by(c).IsZero() && !now.Before(c.By)
	switch {
	case x.Complete && c.List == participant: // 5
		return opFinish
	case x.Closed != "" && c.List == spare: // 1
		return opGracefulExit
	case x.Closed != "": // 2
		return opErrorClosed
	case c.List == spare && x.Complete && n >= r.Nodes.Max: // 3
		return opSync
	case c.List == spare: // 4
		return opRemoveSpare
	case !x.Complete && c.List == participant && n >= r.Nodes.Min && n <= r.Nodes.Max && !x.Deadline.IsZero() && !now.Before(x.Deadline): // 11
		return opComplete
	case past && now.After(c.By.Add(rollback)): // 8
		return opExtend
	case past && c.List == participant: // 6
		return opRemoveParticipant
	case past: // 7
		return opRemoveWaiting
	case x.Complete && n < r.Nodes.Max && c.List != waiting: // 9
		return opAddWaiting
	case x.Complete && n >= r.Nodes.Max: // 10, also for one that waits: nobody waits for a round that has no room
		return opAddSpare
	case !x.Complete && c.List != participant: // 12
		return opAddParticipant
	}
	return opSync // 14
}

// by is until when a node waits. While a last call runs it is as good as in: the round will be complete.
func (x *External) by(c Comer) time.Time {
	if c.List == participant && !x.Deadline.IsZero() {
		return time.Time{}
	}
	return c.By
}

// expiry is upstream's keep-alive and sanitise, for one node. Heartbeats are never written: discovery ages them, and only
// its suspicion sets a time here, which its verdict or a sign of life overtakes.
func (x *External) expiry(c Comer, r spec.Rendezvous, now time.Time) op {
	switch {
	case c.Silent.IsZero() || now.Before(c.Silent):
		return opFinish
	case now.After(c.Silent.Add(r.KeepAliveInterval.D())):
		return opKeepAliveExtension // we were away ourselves: a sign may be on its way to us
	}
	return opExpire
}

// do carries out an action on the node at i and tells whether anything has changed.
func (x *External) do(a op, i int, r spec.Rendezvous, now time.Time) bool {
	c := &x.Comers[i]
	switch a {
	case opAddParticipant:
		x.take(c, r, now)
	case opAddWaiting:
		c.List = waiting
	case opAddSpare:
		c.List, c.By = spare, time.Time{}
	case opRemoveSpare:
		c.List, c.By = outside, now.Add(r.JoinTimeout.D())
	case opComplete:
		x.complete()
	case opExtend:
		c.By = now.Add(rollback)
	case opKeepAliveExtension:
		c.Silent = now.Add(r.KeepAliveInterval.D())
	case opRemoveParticipant, opRemoveWaiting:
		n := x.count(participant)
		x.cast(i, events.MembershipTimedOut, fmt.Sprintf("waited %s: %d of the %d to %d nodes came", r.JoinTimeout.D(), n, r.Nodes.Min, r.Nodes.Max), r, now)
	case opErrorClosed, opGracefulExit:
		x.cast(i, events.MembershipClosed, x.Closed, r, now)
	default:
		return false
	}
	return true
}

// take makes a node a participant of the round that forms.
func (x *External) take(c *Comer, r spec.Rendezvous, now time.Time) {
	c.List = participant
	switch n := x.count(participant); {
	case n == r.Nodes.Max:
		x.complete()
	case n == r.Nodes.Min:
		x.Deadline = now.Add(r.LastCallTimeout.D())
	}
}

func (x *External) complete() {
	x.Complete, x.Deadline, x.Settle = true, time.Time{}, time.Time{}
	for i := range x.Comers {
		if c := &x.Comers[i]; c.List == participant {
			c.By = time.Time{}
		}
	}
}

// cast puts a node out for good and remembers why.
func (x *External) cast(i int, s events.Membership, reason string, r spec.Rendezvous, now time.Time) {
	c := x.Comers[i]
	if x.Out == nil {
		x.Out = map[events.NodeID]Outcast{}
	}
	x.Out[c.Node] = Outcast{Agent: c.Agent, Standing: s, Reason: reason}
	x.remove(i, r, now)
}

// remove takes a node out of its list. Upstream's epilogue follows: a complete round that loses a participant is over, where
// upstream lets the others find that out by themselves; a forming one that falls under min has no last call any more.
func (x *External) remove(i int, r spec.Rendezvous, now time.Time) {
	was := x.Comers[i].List
	x.Comers = slices.Delete(x.Comers, i, i+1)
	switch {
	case was != participant:
	case x.Complete:
		x.next(r, now)
	case x.count(participant) < r.Nodes.Min:
		x.Deadline = time.Time{}
	}
}

// next begins the next round: those who took part are in, then spares and those who wait, in order of arrival. With min it is
// complete at once, as nobody was asked to wait twice; under min it forms anew.
func (x *External) next(r spec.Rendezvous, now time.Time) {
	x.Round++
	x.Complete, x.Deadline, x.Settle = false, time.Time{}, time.Time{}
	n := x.count(participant)
	for i := range x.Comers {
		c := &x.Comers[i]
		if c.List != participant && n < r.Nodes.Max && x.Closed == "" {
			c.List = participant
			n++
		}
		if c.List == participant {
			c.By = now.Add(r.JoinTimeout.D())
		}
	}
	if n >= r.Nodes.Min {
		x.complete()
	}
}

// run decides for everybody until there is nothing left to do. settle is how long those who wait are waited with for others.
func (x *External) run(r spec.Rendezvous, settle time.Duration, now time.Time) {
	for x.round(r, now) {
	}
	switch {
	case !x.Complete || x.count(waiting) == 0:
		x.Settle = time.Time{}
	case x.Settle.IsZero():
		x.Settle = now.Add(settle)
	}
	if !x.Settle.IsZero() && !now.Before(x.Settle) {
		x.next(r, now)
		x.run(r, settle, now)
	}
}

// round looks at every node once and tells whether somebody has to be looked at again.
func (x *External) round(r spec.Rendezvous, now time.Time) bool {
	for i := range x.Comers {
		if a := x.joinOp(x.Comers[i], r, now); x.do(a, i, r, now) {
			return true
		}
	}
	return false
}

// wake is when run must be asked again.
func (x *External) wake() time.Time {
	var d time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (d.IsZero() || t.Before(d)) {
			d = t
		}
	}
	at(x.Deadline)
	at(x.Settle)
	at(x.EmptyBy)
	for _, c := range x.Comers {
		at(x.by(c))
		at(c.Silent)
	}
	return d
}

func (x *External) count(l list) int {
	n := 0
	for i := range x.Comers {
		if x.Comers[i].List == l {
			n++
		}
	}
	return n
}

// nodes lists a list, in order of arrival.
func (x *External) nodes(l list) []events.NodeID {
	var out []events.NodeID
	for _, c := range x.Comers {
		if c.List == l {
			out = append(out, c.Node)
		}
	}
	return out
}

func (x *External) find(n events.NodeID) int {
	return slices.IndexFunc(x.Comers, func(c Comer) bool { return c.Node == n })
}
