// Package devices describes the devices of a node, as its agent sees them.
package devices

import "time"

// GPU is one that workers of a node may use. If a node has as many slots as GPUs, slot i has GPU i.
type GPU struct {
	ID        string `json:"id" bound:"word"`              // as CUDA_VISIBLE_DEVICES names it
	Model     string `json:"model,omitempty" bound:"word"` // empty = unknown
	MemoryMiB int    `json:"memory_mib,omitempty"`         // 0 = unknown
	// Reading is the newest; nil = its state is unknown.
	Reading *Reading `json:"reading,omitempty"`
	Fault   *Fault   `json:"fault,omitempty"` // the newest since its agent has started; nil = none was seen
}

// Reading is what an agent has read of a GPU. What is nil could not be read.
type Reading struct {
	At          time.Time `json:"at"` // on the agent's clock
	UsedMiB     *int      `json:"used_mib,omitempty"`
	BusyPercent *int      `json:"busy_percent,omitempty"` // part of the last while in which a kernel ran
	Celsius     *int      `json:"celsius,omitempty"`
	Corrected   *uint64   `json:"corrected,omitempty"`   // errors of its memory that were corrected, since its driver was loaded
	Uncorrected *uint64   `json:"uncorrected,omitempty"` // and those that were not
	Xids        *uint64   `json:"xids,omitempty"`        // errors that the driver has reported since the agent has started
	LastXid     int       `json:"last_xid,omitempty"`    // number of the newest; 0 = none
}

// Fault says that a GPU does not work as it should: its slot is quarantined. A later one, of a
// later time, counts again.
type Fault struct {
	At     time.Time `json:"at"` // on the agent's clock
	Reason string    `json:"reason" bound:"word"`
}
