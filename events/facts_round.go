package events

import "github.com/regroup-io/regroup/events/spec"

// Facts of the round family; written by the rendezvous. The entity is the job.

// Member is a worker slot that takes part in a generation. Ranks are Horovod's: global, on the node, and among the
// nodes that own this local rank.
type Member struct {
	Place       Place       `json:"place"`
	Incarnation Incarnation `json:"incarnation"`     // of the worker; under restart recovery of the process to come
	Agent       Incarnation `json:"agent,omitempty"` // of the node's agent when it joined
	Attempt     int         `json:"attempt"`
	Rank        int         `json:"rank"`
	LocalRank   int         `json:"local_rank"`
	LocalSize   int         `json:"local_size"`
	CrossRank   int         `json:"cross_rank"`
	CrossSize   int         `json:"cross_size"`
	Address     string      `json:"address,omitempty" bound:"word"` // data-plane host:port
	Commit      Commit      `json:"commit"`                         // the newest it held when it joined
	PID         int         `json:"pid,omitempty"`
}

// RoundOpened says that a new generation is being agreed on.
type RoundOpened struct {
	Job      JobID      `json:"job"`
	Proposed Generation `json:"proposed"`
	Expected Places     `json:"expected"`
	Cause    Cause      `json:"cause"`
}

// RoundMissed says who is asked back in vain: members of the generation that is over, accused or hung, which did not come back
// within elastic.rejoinWithin and without whom the round has fewer than min. Each list replaces the one before.
type RoundMissed struct {
	Job      JobID      `json:"job"`
	Proposed Generation `json:"proposed"`
	Missing  []Member   `json:"missing"` // empty = all have come back since
}

// RoundSealed says who is in a generation, with which rank. A generation is sealed at most once.
type RoundSealed struct {
	Job        JobID       `json:"job"`
	Generation Generation  `json:"generation"`
	Members    MemberTable `json:"members"` // in order of rank
	Cause      Cause       `json:"cause"`
	Excluded   Places      `json:"aside,omitempty"`       // of members before that came back and are left out: their node cannot reach another one
	From       Generation  `json:"from"`                  // last generation with a good step; 0 = none
	NoticeMS   float64     `json:"notice_ms"`             // age of the fault when the first notice arrived
	JudgeMS    float64     `json:"judge_ms"`              // from the first notice to this seal
	NoProgress int         `json:"no_progress,omitempty"` // generations in a row before this one that were lost to faults without progress
}

// RoundParticipantsSet says which nodes have come by themselves to a job that nobody places, and so which places it has from now
// on; it replaces every earlier one. It is told from the first complete round on.
type RoundParticipantsSet struct {
	Job       JobID        `json:"job"`
	Round     int          `json:"round"`  // TorchElastic's, from 0: counts the changes of the set of nodes
	Nodes     []NodeID     `json:"nodes"`  // that take part, in order of arrival
	Places    []Place      `json:"places"` // of these nodes, by node and slot
	Workers   spec.Workers `json:"workers"`
	Reason    string       `json:"reason"`           // why it changed
	LostNodes []NodeID     `json:"gone,omitempty"`   // nodes that were taken out because they are lost
	Closed    bool         `json:"closed,omitempty"` // nobody is taken in any more

	Abandoned bool `json:"abandoned,omitempty"` // because nobody came for too long, before there was a generation
}

// RoundClosed says that the rendezvous of a job is over for good.
type RoundClosed struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"`
}
