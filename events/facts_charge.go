package events

// ChargeKind is the closed list of what a life can be charged with.
type ChargeKind string

// Kinds of failure.
const (
	ChargeCrash  ChargeKind = "crash"  // it ended by itself with a code that is not 0
	ChargeSignal ChargeKind = "signal" // it was ended by a signal that nobody of ours has sent
	ChargeOOM    ChargeKind = "oom"    // it was killed by the kernel for memory
	ChargeLost   ChargeKind = "lost"   // its node is gone, or its peers lost it and it did not come back
	ChargeHang   ChargeKind = "hang"   // it made no progress for longer than the job allows
)

// JobCharged says that a failure was charged to one life of a worker. A life is charged at most once, planned ends never.
type JobCharged struct {
	Job        JobID       `json:"job"`
	Place      Place       `json:"place"`
	Worker     Incarnation `json:"worker"`
	Agent      Incarnation `json:"agent"`
	Generation Generation  `json:"generation"` // that it was part of; 0 = none yet
	Rank       int         `json:"rank"`       // in Generation, -1 = none
	Step       uint64      `json:"step"`       // the last one that it reported; 0 = none
	Kind       ChargeKind  `json:"kind"`
	Detail     string      `json:"detail"` // a sentence: killed by signal 9 (SIGKILL)
}
