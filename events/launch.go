package events

import "github.com/regroup-io/regroup/events/spec"

// Phase says what a node must do for a job.
type Phase string

// Phases of a launch.
const (
	// PhasePrepare: a round is open. In-process recovery: see that every listed worker runs; those that were in an
	// older generation leave it now unless Planned. Restart recovery: stop processes of older generations, then join for
	// every listed place.
	PhasePrepare Phase = "prepare"
	// PhaseRun: the generation is sealed. Members with Rank >= 0 belong to it; members with Rank -1 warm up aside.
	PhaseRun Phase = "run"
	// PhaseStop: the job is over here: stop every worker of it, with Stop's grace.
	PhaseStop Phase = "stop"
)

// Launch is the whole of what one node must do for one job. A later one replaces an earlier one; Revision orders them.
type Launch struct {
	Job        JobID          `json:"job"`
	Node       NodeID         `json:"node"`
	Revision   uint64         `json:"revision"` // version of the round's document that it was made from
	Phase      Phase          `json:"phase"`
	Generation Generation     `json:"generation"` // prepare: the proposed one; run: the sealed one
	Spec       spec.Job       `json:"spec"`
	World      int            `json:"world,omitempty"`
	Members    []LaunchMember `json:"members"`                       // of this node only, by slot
	Master     string         `json:"master,omitempty" bound:"word"` // run: data-plane host:port of rank 0
	Token      string         `json:"token,omitempty" bound:"word"`  // run: fences the generation's connections
	Planned    bool           `json:"planned,omitempty"`             // run: members should leave at their next commit; prepare: at their commit, not now
	From       Generation     `json:"from,omitempty"`                // the generation that the open incident broke; 0 = start
	Cause      Cause          `json:"cause"`
	Trace      string         `json:"trace,omitempty"`            // traceparent of the incident or start
	Reason     string         `json:"reason,omitempty"`           // stop: why
	Now        bool           `json:"now,omitempty"`              // stop: without grace
	Via        string         `json:"via,omitempty" bound:"word"` // replica that told it: it knows the round, ask it first
}

// LaunchMember is one worker of the node.
type LaunchMember struct {
	Member
	// Peers are addresses by rank: of its ring neighbours, or of members that hold the state if it warms up aside.
	Peers map[int]string `json:"peers,omitempty"`
}

// Type of the bodies that are not facts or commands names spans and log lines.
func (NodeHello) Type() Type        { return "dev.regroup.req.node-hello.v1" }
func (NodeLeave) Type() Type        { return "dev.regroup.req.node-bye.v1" }
func (NodeWelcome) Type() Type      { return "dev.regroup.req.node-welcome.v1" }
func (MemberJoin) Type() Type       { return "dev.regroup.req.member-join.v1" }
func (MemberWaiting) Type() Type    { return "dev.regroup.req.member-waiting.v1" }
func (MemberJoins) Type() Type      { return "dev.regroup.req.member-joins.v1" }
func (MemberAnswers) Type() Type    { return "dev.regroup.req.member-answers.v1" }
func (PeersQuery) Type() Type       { return "dev.regroup.req.peers-query.v1" }
func (PeersAnswer) Type() Type      { return "dev.regroup.req.peers-answer.v1" }
func (Ping) Type() Type             { return "dev.regroup.req.ping.v1" }
func (Pong) Type() Type             { return "dev.regroup.req.pong.v1" }
func (Alive) Type() Type            { return "dev.regroup.req.alive.v1" }
func (ProgressQuery) Type() Type    { return "dev.regroup.req.heard-query.v1" }
func (ProgressAnswer) Type() Type   { return "dev.regroup.req.heard-answer.v1" }
func (Heartbeat) Type() Type        { return "dev.regroup.sig.heartbeat.v1" }
func (Notice) Type() Type           { return "dev.regroup.sig.notice.v1" }
func (Progress) Type() Type         { return "dev.regroup.sig.progress.v1" }
func (HeartbeatMissed) Type() Type  { return "dev.regroup.sig.silence.v1" }
func (StepsStalled) Type() Type     { return "dev.regroup.sig.standstill.v1" }
func (Disconnected) Type() Type     { return "dev.regroup.sig.cut.v1" }
func (HeartbeatSeen) Type() Type    { return "dev.regroup.sig.heard.v1" }
func (Abandon) Type() Type          { return "dev.regroup.sig.abandon.v1" }
func (Launch) Type() Type           { return "dev.regroup.launch.launch.v1" }
func (NodeEnter) Type() Type        { return "dev.regroup.req.node-enter.v1" }
func (NodeExit) Type() Type         { return "dev.regroup.req.node-exit.v1" }
func (RendezvousClose) Type() Type  { return "dev.regroup.req.rendezvous-close.v1" }
func (NodeMembership) Type() Type   { return "dev.regroup.req.node-standing.v1" }
func (RendezvousStatus) Type() Type { return "dev.regroup.sig.gathering.v1" }
