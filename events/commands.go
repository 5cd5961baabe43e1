package events

import "github.com/regroup-io/regroup/events/spec"

// Commands of clients. They travel as CloudEvents on the commands stream.

// JobSubmit asks for a job. Its id is the first free one of JobIDs(Spec.Name, source, id) of the event: job.submitted, whose cause
// is the event's id, says which.
type JobSubmit struct {
	Spec spec.Job `json:"spec"`
}

// JobScale asks for another number of workers.
type JobScale struct {
	Job     JobID        `json:"job"`
	Workers spec.Workers `json:"workers"`
}

// JobStop asks to end a job.
type JobStop struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason,omitempty"`
	Now    bool   `json:"now,omitempty"` // kill instead of asking
}

// JobRemove asks to remove the record of a job that has ended. Its facts and output stay in their streams for as long as those keep them.
type JobRemove struct {
	Job JobID `json:"job"`
}

// NodeDrain asks that a node gets no more work and gives away what it has.
type NodeDrain struct {
	Node   NodeID `json:"node"`
	Reason string `json:"reason,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
}
