package queue

// Phase is a moment in the life of an operation.
type Phase uint8

// The phases.
const (
	Submitted  Phase = iota // by this rank
	Began                   // all ranks have submitted it, and it is being carried out
	Ended                   // with or without an error
	CycleBegan              // of no operation: the ranks begin to compare what they have
)

// Event is a phase of an operation.
type Event struct {
	Phase  Phase
	Name   string
	Method Method
	Packed int // with Began: how many operations are carried out as one
}
