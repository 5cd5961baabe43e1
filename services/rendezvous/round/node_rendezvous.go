package round

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// NodeRendezvous is the rendezvous of self-registered nodes. State, decisions and actions are those
// of TorchElastic's dynamic rendezvous
// (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), made by one service instead of by
// every node: the service decides for a node from its registration to its removal, so that no node
// polls, and all times are the service's.
//
//	          enter                          min reached, last call over; or max reached
//	(none) ─────────► forming, participants ────────────────────────────────────────────► complete
//	                     ▲ complete, room: wait list ──► after elastic.settle ──┐             │
//	                     │ complete, full: spares    ──► a member is lost ──────┤             │
//	                     └───────────────── next round: survivors first ◄───────┴─────────────┘
type NodeRendezvous struct {
	Round      int         `json:"round"`
	Complete   bool        `json:"complete,omitempty"`
	Deadline   time.Time   `json:"deadline,omitzero"`    // forming: end of the last call
	Settle     time.Time   `json:"settle,omitzero"`      // complete: end of the wait before waiting nodes are added
	Closed     string      `json:"closed,omitempty"`     // why no node is added any more
	Candidates []Candidate `json:"candidates,omitempty"` // in order of arrival
	// Set while all lists are empty and no generation was sealed: the job is then abandoned.
	AbandonAt time.Time `json:"abandon_at,omitzero"`

	Abandoned bool `json:"abandoned,omitempty"`

	Removed map[ident.NodeID]RemovedNode       `json:"removed,omitempty"` // nodes that are in no list any more, and why
	Lost    map[ident.NodeID]ident.Incarnation `json:"lost,omitempty"`    // declared lost by discovery and not recovered yet
}

// candidateList is the list that a node is in. No node is in two.
type candidateList string

const (
	participant candidateList = "participant"
	waiting     candidateList = "waiting"
	spare       candidateList = "spare" // TorchElastic's redundancy list
	unlisted    candidateList = ""      // has just registered
)

// Candidate is a node in one of the lists.
type Candidate struct {
	Node      ident.NodeID      `json:"node"`
	Agent     ident.Incarnation `json:"agent"`
	List      candidateList     `json:"list,omitempty"`
	JoinBy    time.Time         `json:"join_by,omitzero"`    // deadline for its round to be complete; zero = none
	ExpiresAt time.Time         `json:"expires_at,omitzero"` // set while discovery suspects it
}

// RemovedNode is a node incarnation that was removed for good.
type RemovedNode struct {
	Agent      ident.Incarnation `json:"agent"`
	Membership events.Membership `json:"membership"`
	Reason     string            `json:"reason"`
}

// rollback is TorchElastic's: how late after its join deadline a node may still be withdrawn. If
// the service looks later than that, no replica was running, and that time does not count.
const rollback = 5 * time.Second

// op is an operation on a node, with TorchElastic's names.
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
	opExtend             op = "EXTEND" // not in TorchElastic: no replica was running
	opExpire             op = "EXPIRE" // TorchElastic calls it sanitise
	opKeepAliveExtension op = "KEEP_ALIVE"
)

// joinOp is TorchElastic's join operation; the numbers are the rows of its table. The differences:
//   - 5 comes before 2: closing refuses new nodes and ends no running work;
//   - 11 comes before 6: a node that waited for a last call that is over is a participant, even if
//     the service processed it late;
//   - 8 is no error: no replica was running.
//
// 13 needs no write: see expiry.
func (x *NodeRendezvous) joinOp(c Candidate, r spec.Rendezvous, now time.Time) op {
	n := x.count(participant)
	past := !x.joinDeadline(c).IsZero() && !now.Before(c.JoinBy)
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
	case past && now.After(c.JoinBy.Add(rollback)): // 8
		return opExtend
	case past && c.List == participant: // 6
		return opRemoveParticipant
	case past: // 7
		return opRemoveWaiting
	case x.Complete && n < r.Nodes.Max && c.List != waiting: // 9
		return opAddWaiting
	case x.Complete && n >= r.Nodes.Max: // 10, also for a waiting node: a complete round that is full has no wait list
		return opAddSpare
	case !x.Complete && c.List != participant: // 12
		return opAddParticipant
	}
	return opSync // 14
}

// joinDeadline returns how long a node waits. It does not expire during a last call, because the
// round is about to be complete.
func (x *NodeRendezvous) joinDeadline(c Candidate) time.Time {
	if c.List == participant && !x.Deadline.IsZero() {
		return zeroTime
	}
	return c.JoinBy
}

// expiry is TorchElastic's keep-alive and sanitise for one node. Heartbeats are never written:
// discovery tracks them, and only its suspicion sets an expiry here, which its decision or a
// heartbeat overrides.
func (x *NodeRendezvous) expiry(c Candidate, r spec.Rendezvous, now time.Time) op {
	switch {
	case c.ExpiresAt.IsZero() || now.Before(c.ExpiresAt):
		return opFinish
	case now.After(c.ExpiresAt.Add(r.KeepAliveInterval.D())):
		return opKeepAliveExtension // no replica was running: a heartbeat may be on its way
	}
	return opExpire
}

// apply performs an operation on the node at i and reports whether anything has changed.
func (x *NodeRendezvous) apply(a op, i int, r spec.Rendezvous, now time.Time) bool {
	c := &x.Candidates[i]
	switch a {
	case opAddParticipant:
		x.addParticipant(c, r, now)
	case opAddWaiting:
		c.List = waiting
	case opAddSpare:
		c.List, c.JoinBy = spare, time.Time{}
	case opRemoveSpare:
		c.List, c.JoinBy = unlisted, now.Add(r.JoinTimeout.D())
	case opComplete:
		x.complete()
	case opExtend:
		c.JoinBy = now.Add(rollback)
	case opKeepAliveExtension:
		c.ExpiresAt = now.Add(r.KeepAliveInterval.D())
	case opRemoveParticipant, opRemoveWaiting:
		n := x.count(participant)
		x.evict(i, events.MembershipTimedOut, fmt.Sprintf("waited %s: %d of the %s came", r.JoinTimeout.D(), n, english.Between(r.Nodes.Min, r.Nodes.Max, "node")), r, now)
	case opErrorClosed, opGracefulExit:
		x.evict(i, events.MembershipClosed, x.Closed, r, now)
	default:
		return false
	}
	return true
}

// addParticipant makes a node a participant of the forming round.
func (x *NodeRendezvous) addParticipant(c *Candidate, r spec.Rendezvous, now time.Time) {
	c.List = participant
	switch n := x.count(participant); {
	case n == r.Nodes.Max:
		x.complete()
	case n == r.Nodes.Min:
		x.Deadline = now.Add(r.LastCallTimeout.D())
	}
}

func (x *NodeRendezvous) complete() {
	x.Complete, x.Deadline, x.Settle = true, time.Time{}, time.Time{}
	for i := range x.Candidates {
		if c := &x.Candidates[i]; c.List == participant {
			c.JoinBy = time.Time{}
		}
	}
}

func (x *NodeRendezvous) evict(i int, s events.Membership, reason string, r spec.Rendezvous, now time.Time) {
	c := x.Candidates[i]
	put(&x.Removed, c.Node, RemovedNode{Agent: c.Agent, Membership: s, Reason: reason})
	x.remove(i, r, now)
}

// remove takes a node off its list. A complete round that loses a participant is over at once,
// where TorchElastic leaves that to the other nodes to find out; a forming round that falls below
// min cancels its last call.
func (x *NodeRendezvous) remove(i int, r spec.Rendezvous, now time.Time) {
	was := x.Candidates[i].List
	x.Candidates = slices.Delete(x.Candidates, i, i+1)
	switch {
	case was != participant:
	case x.Complete:
		x.nextRound(r, now)
	case x.count(participant) < r.Nodes.Min:
		x.Deadline = time.Time{}
	}
}

// nextRound begins the next round: first the previous participants, then spares and waiting nodes
// in order of arrival. With at least min nodes it is complete at once, so that no node waits twice;
// with fewer it forms again.
func (x *NodeRendezvous) nextRound(r spec.Rendezvous, now time.Time) {
	x.Round++
	x.Complete, x.Deadline, x.Settle = false, time.Time{}, time.Time{}
	n := x.count(participant)
	for i := range x.Candidates {
		c := &x.Candidates[i]
		if c.List != participant && n < r.Nodes.Max && x.Closed == "" {
			c.List = participant
			n++
		}
		if c.List == participant {
			c.JoinBy = now.Add(r.JoinTimeout.D())
		}
	}
	if n >= r.Nodes.Min {
		x.complete()
	}
}

// process applies operations until nothing changes. Waiting nodes wait settle for further ones, or
// less if it has become shorter.
func (x *NodeRendezvous) process(r spec.Rendezvous, settle time.Duration, now time.Time) {
	for x.pass(r, now) {
	}
	switch {
	case !x.Complete || x.count(waiting) == 0:
		x.Settle = time.Time{}
	case x.Settle.IsZero() || x.Settle.After(now.Add(settle)):
		x.Settle = now.Add(settle)
	}
	if !x.Settle.IsZero() && !now.Before(x.Settle) {
		x.nextRound(r, now)
		x.process(r, settle, now)
	}
}

// pass processes every node once and reports whether another pass is needed.
func (x *NodeRendezvous) pass(r spec.Rendezvous, now time.Time) bool {
	for i := range x.Candidates {
		if a := x.joinOp(x.Candidates[i], r, now); x.apply(a, i, r, now) {
			return true
		}
	}
	return false
}

// deadline returns when process must be called again.
func (x *NodeRendezvous) deadline() time.Time {
	d := events.Earliest(x.Deadline, x.Settle, x.AbandonAt)
	for _, c := range x.Candidates {
		d = events.Earliest(d, x.joinDeadline(c), c.ExpiresAt)
	}
	return d
}

func (x *NodeRendezvous) count(l candidateList) int {
	n := 0
	for i := range x.Candidates {
		if x.Candidates[i].List == l {
			n++
		}
	}
	return n
}

// nodes returns the nodes of a list in order of arrival.
func (x *NodeRendezvous) nodes(l candidateList) []ident.NodeID {
	var out []ident.NodeID
	for _, c := range x.Candidates {
		if c.List == l {
			out = append(out, c.Node)
		}
	}
	return out
}

func (x *NodeRendezvous) find(n ident.NodeID) int {
	return slices.IndexFunc(x.Candidates, func(c Candidate) bool { return c.Node == n })
}
