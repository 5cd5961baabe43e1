package tables

import "github.com/regroup-io/regroup/events/ident"

// StateHash identifies the state of a training after so many steps: its weights, buffers and
// optimizer. Where a training is reproducible it is the same however many workers there were, and
// whichever of them have died.
type StateHash struct {
	Step uint64 `json:"step"` // steps that were made
	Hash string `json:"hash" bound:"word"`
}

// DealtSteps says which ranks have computed the micro-batches of steps in a row.
type DealtSteps struct {
	First      uint64           `json:"first"`
	Last       uint64           `json:"last"`
	Generation ident.Generation `json:"generation"`            // in which they ended
	Ranks      []int            `json:"ranks" bound:"workers"` // by micro-batch
	// Again is how many of them had been dealt to a rank that was lost, and were dealt once more;
	// nil = that is not known.
	Again *uint64 `json:"again,omitempty"`
}
