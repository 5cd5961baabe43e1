// Package spares says how many spares of a job a node has: Python interpreters that have imported
// PyTorch, and wait to become workers.
package spares

import "github.com/regroup-io/regroup/events/ident"

// Kept are the spares of a job on a node.
type Kept struct {
	Job    ident.JobID `json:"job"`
	Wanted int         `json:"wanted"`
	Ready  int         `json:"ready"` // that have imported all, and have started CUDA if they should
	// Problem is the newest one of a spare that cannot become ready; empty = none is known.
	Problem string `json:"problem,omitempty"`
}
