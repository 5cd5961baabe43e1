package events

import "github.com/regroup-io/regroup/events/spec"

// Facts of the placement family; written by the scheduler. The entity is the job.

// PlacementSet says which places a job has from now on; it replaces every earlier one of a lower Number.
type PlacementSet struct {
	Job       JobID        `json:"job"`
	Places    Places       `json:"places"`         // sorted by node and slot; may be fewer than Min after a loss
	Workers   spec.Workers `json:"workers"`        // as wanted when this was decided
	Spec      spec.Job     `json:"spec"`           // so that the rendezvous needs no other reading
	Reason    string       `json:"reason"`         // why it changed
	LostNodes []NodeID     `json:"gone,omitempty"` // nodes that were taken out because they are lost (not planned)
	// Hosts is the nodes of Places in the order of the host list, in which new nodes get their ranks; empty = by name.
	Hosts []NodeID `json:"hosts,omitempty"`
}

// PlacementWaiting says why a job cannot be placed now.
type PlacementWaiting struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason"` // a sentence with numbers
	Need   int    `json:"need"`
	Free   int    `json:"free"`
}

// PlacementReleased says that an ended job's places are free again.
type PlacementReleased struct {
	Job JobID `json:"job"`
}
