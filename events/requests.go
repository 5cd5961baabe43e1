package events

import (
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spares"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// Requests and their replies: plain JSON over core messaging, idempotent, retried by the caller.

// NodeHello asks discovery to admit an agent (verb join).
type NodeHello struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Slots       int               `json:"slots" bound:"slots"`
	Address     string            `json:"address" bound:"word"`           // data-plane host that peers can reach
	Version     string            `json:"version,omitempty" bound:"word"` // of the agent's program
	GPUs        []devices.GPU     `json:"gpus,omitempty"`
	Spares      []spares.Kept     `json:"spares,omitempty"`
	// Set by the replica that receives it: the node's entry in the host list; nil = no change.
	HostEntry *HostEntry `json:"-"`
	FleetSize int        `json:"-"` // like HostEntry: the number of nodes
	Several   bool       `json:"-"` // like HostEntry: there are several brokers
	// Like HostEntry: how long the replica has not heard the incarnation that this one replaces;
	// 0 = unknown.
	Silence   time.Duration `json:"-"`
	Link      broker.Link   `json:"link,omitzero"`
	Departing *Departure    `json:"departing,omitempty"` // the node will go away; it stays set for this incarnation of the agent
	// Predecessors are the newest incarnations to which the agent's state folder belonged before.
	// What they had left running has ended. Only an agent that names the incarnation in discovery's
	// record replaces it while that lives. Empty = the folder is new.
	Predecessors []ident.Incarnation `json:"predecessors,omitempty" bound:"predecessors"`
	// Preflight has the figures of the GPUs; nil = the agent has measured nothing.
	Preflight *figures.Preflight `json:"preflight,omitempty"`
}

// LeaseRenew asks for the lease of an agent (verb renew): the right to have processes run for some
// time from when it was sent. Without a node it only proves that discovery can be reached.
type LeaseRenew struct {
	Node        ident.NodeID      `json:"node,omitempty"`
	Incarnation ident.Incarnation `json:"incarnation,omitempty"`
	Link        broker.Link       `json:"link,omitzero"`
}

// LeaseGrant answers LeaseRenew. An agent that has not got one for Restart must end its processes
// of recovery by restart, and after InPlace all.
type LeaseGrant struct {
	Restart   spec.Duration `json:"restart,omitzero"`
	InPlace   spec.Duration `json:"in_place,omitzero"`
	TimesLost uint64        `json:"times_lost,omitempty"` // see NodeView
}

// Departure announces that a node will go away: its work should move, its failures do not count.
type Departure struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until,omitzero"` // when it is gone at the latest; zero = unknown
}

// NodeLeave announces that an agent leaves (verb leave).
type NodeLeave struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Reason      string            `json:"reason"`
}

// NodeWelcome answers NodeHello and NodeLeave.
type NodeWelcome struct {
	Node      ident.NodeID  `json:"node"`
	Heartbeat spec.Duration `json:"heartbeat,omitzero"`   // minimum interval of heartbeats; zero = the agent's own
	Hello     spec.Duration `json:"hello,omitzero"`       // minimum interval of hellos
	Patience  spec.Duration `json:"patience,omitzero"`    // minimum timeout of a join
	TimesLost uint64        `json:"times_lost,omitempty"` // see NodeView
}

// MemberJoin asks, idempotently, to include a worker in the next generation (verb join).
type MemberJoin struct {
	Job         ident.JobID       `json:"job"`
	Place       ident.Place       `json:"place"`
	Incarnation ident.Incarnation `json:"incarnation"` // of the worker, or of the process that an agent will start
	Agent       ident.Incarnation `json:"agent"`
	Attempt     int               `json:"attempt"`
	PID         int               `json:"pid,omitempty"`
	// Data-plane host:port; restart recovery: host:port free for MASTER_ADDR and MASTER_PORT.
	Address string           `json:"address" bound:"word"`
	Left    ident.Generation `json:"left"`              // generation that it has just left; 0 = newcomer
	Planned bool             `json:"planned"`           // it left as requested
	Accused []int            `json:"accused,omitempty"` // ranks of Left that its collective lost
	// Pairs of ranks of Left: the first could not reach the second, or lost its connection to it.
	Broken   [][2]int      `json:"broken,omitempty"`
	NoticeMS float64       `json:"notice_ms"` // age of the reason why it left, on its own clock
	Commit   tables.Commit `json:"commit"`
	// Newcomer that prefetches the state: include it when it joins again without this, or if it is
	// needed.
	Unsynced bool `json:"unsynced,omitempty"`
}

// MemberWaiting answers MemberJoin: the join is accepted, the assignment follows with the launch.
type MemberWaiting struct {
	Job      ident.JobID      `json:"job"`
	Proposed ident.Generation `json:"proposed"`          // the open round's; or the sealed one that it is in already
	Sealed   bool             `json:"sealed"`            // it is in Proposed, whose launch was published and is published again
	Over     bool             `json:"over,omitempty"`    // no further generation: the job is finishing, exit 0
	Removed  bool             `json:"removed,omitempty"` // this place no longer belongs to the job: exit 0
}

// MemberJoins contains the joins of several workers of one node (verb joins). It is idempotent.
type MemberJoins struct {
	Job   ident.JobID  `json:"job"`
	Joins []MemberJoin `json:"joins"`
}

// MemberAnswers answers MemberJoins, in the order of its joins.
type MemberAnswers struct {
	Answers []MemberAnswer `json:"answers"`
}

// MemberAnswer is the answer to one join: accepted, or refused with a code and a reason.
type MemberAnswer struct {
	MemberWaiting
	Refused errcode.Code `json:"refused,omitempty"`
	Reason  string       `json:"reason,omitempty"`
}

// PeersQuery asks for data-plane addresses (verb peers).
type PeersQuery struct {
	Job        ident.JobID      `json:"job"`
	Generation ident.Generation `json:"generation"`
	Ranks      []int            `json:"ranks"`
}

// PeersAnswer answers PeersQuery.
type PeersAnswer struct {
	Addresses map[int]string `json:"addresses"`
}

// NodeEnter asks, idempotently, to admit a self-registered node to a job (verb enter).
type NodeEnter struct {
	Job         ident.JobID       `json:"job"`
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Slots       int               `json:"slots" bound:"slots"`
	Spec        spec.Job          `json:"spec"` // the job as this node knows it; it must be the same on all nodes
}

// NodeExit withdraws a node from its job (verb exit). The job goes on without it.
type NodeExit struct {
	Job         ident.JobID       `json:"job"`
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Reason      string            `json:"reason"`
}

// RendezvousClose asks that no more nodes are admitted to a job (verb close).
type RendezvousClose struct {
	Job     ident.JobID `json:"job"`
	Reason  string      `json:"reason"`
	Expires time.Time   `json:"expires,omitzero"` // by the clock of the broker: later it is refused
}

// Expiry returns when the sender gives up the request.
func (r RendezvousClose) Expiry() time.Time { return r.Expires }

// Membership is the status of a self-registered node in its job.
type Membership string

// Memberships. The last four are final for this incarnation of the agent.
const (
	MembershipParticipant Membership = "participant" // of the round that forms or runs
	MembershipWaiting     Membership = "waiting"     // the round is complete and has room: it participates after the next commit
	MembershipSpare       Membership = "spare"       // the round is complete and full: it replaces a member that is lost
	MembershipTimedOut    Membership = "timed-out"   // no round was complete within the join timeout
	MembershipClosed      Membership = "closed"      // no more nodes are admitted
	MembershipLeft        Membership = "left"        // it withdrew, or drains
	MembershipOver        Membership = "over"        // the job has ended
)

// Final reports whether the node has nothing to wait for.
func (s Membership) Final() bool {
	return s == MembershipTimedOut || s == MembershipClosed || s == MembershipLeft || s == MembershipOver
}

// NodeMembership answers NodeEnter, NodeExit and RendezvousClose.
type NodeMembership struct {
	RendezvousStatus
	Node       ident.NodeID `json:"node"`
	Membership Membership   `json:"membership"`
	Reason     string       `json:"reason,omitempty"` // of a final membership
}

// Ping asks an agent whether it is alive (verb ping).
type Ping struct{}

// Alive is the answer of a replica that its service is running (verb alive).
type Alive struct {
	Service string `json:"service"`
	Replica string `json:"replica"`
}

// ProgressQuery asks the registry for jobs' progress (verb progress). Every replica has it in
// memory from the agents' signals.
type ProgressQuery struct {
	Jobs []ident.JobID `json:"jobs"`
}

// ProgressAnswer answers ProgressQuery for the running jobs, as far as that replica knows.
type ProgressAnswer struct {
	Jobs map[ident.JobID]JobProgress `json:"jobs"`
}

// JobProgress is the progress of a job.
type JobProgress struct {
	Generation ident.Generation  `json:"generation"`
	Step       uint64            `json:"step"` // newest one of any worker in Generation; 0 = none was reported
	At         time.Time         `json:"at,omitzero"`
	Reported   map[string]Metric `json:"reported,omitempty"`
	Redundancy *Redundancy       `json:"redundancy,omitempty"` // the newest that was reported, in Generation or before
}

// Pong answers Ping.
type Pong struct {
	Node        ident.NodeID      `json:"node"`
	Incarnation ident.Incarnation `json:"incarnation"`
	Link        broker.Link       `json:"link,omitzero"`
}

// Phase is what a node must do for a job.
type Phase string

// Phases of a launch.
const (
	// PhasePrepare: a round is open. In-process recovery: ensure that every listed worker runs;
	// those in an older generation leave it now unless Planned. Restart recovery: stop processes of
	// older generations, then join for every listed place.
	PhasePrepare Phase = "prepare"
	// PhaseRun: the generation is sealed. Members with Rank -1 only prefetch the state.
	PhaseRun Phase = "run"
	// PhaseStop: the job is over on this node: stop all its workers, with Stop's grace.
	PhaseStop Phase = "stop"
)

// Launch contains everything that one node must do for one job. A later one replaces an earlier
// one; Revision orders them.
type Launch struct {
	Job        ident.JobID      `json:"job"`
	Node       ident.NodeID     `json:"node"`
	Revision   uint64           `json:"revision"` // version of the round's document that it is based on
	Phase      Phase            `json:"phase"`
	Generation ident.Generation `json:"generation"` // prepare: the proposed one; run: the sealed one
	Spec       spec.Job         `json:"spec"`
	World      int              `json:"world,omitempty"`
	Spares     int              `json:"spares,omitempty"`              // run: workers that only give what they have of the state
	Members    []LaunchMember   `json:"members"`                       // of this node only, by slot
	Master     string           `json:"master,omitempty" bound:"word"` // run: data-plane host:port of rank 0
	Token      string           `json:"token,omitempty" bound:"word"`  // run: fences the generation's connections
	// Run: members should leave at their next commit; prepare: at their commit, not now.
	Planned bool `json:"planned,omitempty"`
	// Generations that a failure has made necessary, up to this one: planned changes do not count.
	Restarts int              `json:"restarts,omitempty"`
	From     ident.Generation `json:"from,omitempty"` // the generation that the open incident broke; 0 = start
	Cause    Cause            `json:"cause"`
	Trace    string           `json:"trace,omitempty"`  // traceparent of the incident or start
	Reason   string           `json:"reason,omitempty"` // stop: why
	Now      bool             `json:"now,omitempty"`    // stop: without grace
	// Stop: the job has ended or is about to, and not only its part on this node.
	JobEnds bool `json:"job_ends,omitempty"`
	// Replica that published it and has the round in its cache: ask it first.
	Via string `json:"via,omitempty" bound:"word"`
}

// LaunchMember is one worker of the node.
type LaunchMember struct {
	tables.Member
	// Peers are addresses by rank: of ring neighbours, or of members to prefetch the state from.
	Peers map[int]string `json:"peers,omitempty"`
	// Leaving: the next generation will be without this place, which a member under in-process
	// recovery leaves at a commit.
	Leaving bool `json:"leaving,omitempty"`
	// SpareRank is, for one of Spares, the rank that it has while it gives: World or more. Its
	// LocalRank is the distance to the lowest rank of its node.
	SpareRank int `json:"spare_rank,omitempty"`
}

// Type returns the type. Those of bodies that are not facts or commands name spans and log lines.
func (NodeHello) Type() Type        { return "dev.regroup.req.node-hello.v1" }
func (NodeLeave) Type() Type        { return "dev.regroup.req.node-leave.v1" }
func (NodeWelcome) Type() Type      { return "dev.regroup.req.node-welcome.v1" }
func (LeaseRenew) Type() Type       { return "dev.regroup.req.lease-renew.v1" }
func (LeaseGrant) Type() Type       { return "dev.regroup.req.lease-grant.v1" }
func (MemberJoin) Type() Type       { return "dev.regroup.req.member-join.v1" }
func (MemberWaiting) Type() Type    { return "dev.regroup.req.member-waiting.v1" }
func (MemberJoins) Type() Type      { return "dev.regroup.req.member-joins.v1" }
func (MemberAnswers) Type() Type    { return "dev.regroup.req.member-answers.v1" }
func (PeersQuery) Type() Type       { return "dev.regroup.req.peers-query.v1" }
func (PeersAnswer) Type() Type      { return "dev.regroup.req.peers-answer.v1" }
func (Ping) Type() Type             { return "dev.regroup.req.ping.v1" }
func (Pong) Type() Type             { return "dev.regroup.req.pong.v1" }
func (Alive) Type() Type            { return "dev.regroup.req.alive.v1" }
func (ProgressQuery) Type() Type    { return "dev.regroup.req.progress-query.v1" }
func (ProgressAnswer) Type() Type   { return "dev.regroup.req.progress-answer.v1" }
func (Heartbeat) Type() Type        { return "dev.regroup.sig.heartbeat.v1" }
func (Notice) Type() Type           { return "dev.regroup.sig.notice.v1" }
func (Progress) Type() Type         { return "dev.regroup.sig.progress.v1" }
func (HeartbeatMissed) Type() Type  { return "dev.regroup.sig.heartbeat-missed.v1" }
func (StepsStalled) Type() Type     { return "dev.regroup.sig.steps-stalled.v1" }
func (Disconnected) Type() Type     { return "dev.regroup.sig.disconnected.v1" }
func (HeartbeatSeen) Type() Type    { return "dev.regroup.sig.heartbeat-seen.v1" }
func (Abandon) Type() Type          { return "dev.regroup.sig.abandon.v1" }
func (Launch) Type() Type           { return "dev.regroup.launch.launch.v1" }
func (NodeEnter) Type() Type        { return "dev.regroup.req.node-enter.v1" }
func (NodeExit) Type() Type         { return "dev.regroup.req.node-exit.v1" }
func (RendezvousClose) Type() Type  { return "dev.regroup.req.rendezvous-close.v1" }
func (NodeMembership) Type() Type   { return "dev.regroup.req.node-membership.v1" }
func (RendezvousStatus) Type() Type { return "dev.regroup.sig.rendezvous-status.v1" }

// Commands of clients. They travel as CloudEvents on the commands stream.

// JobSubmit submits a job. Its id is the first free one of JobIDs(Spec.Name, source, id) of the
// event. It is in job.submitted, whose cause is the event's id.
type JobSubmit struct {
	Spec spec.Job `json:"spec"`
}

// JobScale changes the wanted number of workers.
type JobScale struct {
	Job     ident.JobID  `json:"job"`
	Workers spec.Workers `json:"workers"`
}

// JobStop stops a job.
type JobStop struct {
	Job    ident.JobID `json:"job"`
	Reason string      `json:"reason,omitempty"`
	Now    bool        `json:"now,omitempty"` // kill without grace
}

// JobRemove removes the record of a job that has ended. Its facts and output stay in their streams
// for as long as those keep them.
type JobRemove struct {
	Job ident.JobID `json:"job"`
}

// NodeDrain drains a node: it gets no more work and gives away its present work.
type NodeDrain struct {
	Node   ident.NodeID `json:"node"`
	Reason string       `json:"reason,omitempty"`
	Undo   bool         `json:"undo,omitempty"`
}
