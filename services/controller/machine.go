package controller

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Machine is the pure half of a service: it decides, the loop does. S is the state of one entity; it is stored as JSON
// and must hold its public view in a field tagged "view".
//
// Step is total: it tolerates repeats, gaps, late and reordered inputs and those of an old generation or incarnation.
// It may modify and return s: after a failed store the loop forgets it and reads it again. Step reads no clock and no
// randomness: now and in.Nonce are all it gets.
type Machine[S any] interface {
	// New returns the state of an entity that has no document yet.
	New(entity string) S
	// Step takes one input into account.
	Step(s S, in events.Input, now time.Time) (S, events.Decision)
	// Deadline says when Step must be given a Tick even if nothing else happens; zero = never.
	Deadline(s S) time.Time
}

// Batcher is a Machine that takes several inputs in before it draws its conclusions, so that a batch costs one look at the
// whole state. Step is Take and Conclude of one input.
type Batcher[S any] interface {
	Machine[S]
	// Take takes one input into account: it answers, and changes what the input itself says.
	Take(s S, in events.Input, now time.Time) (S, events.Decision)
	// Conclude decides what follows from the state as it is now. last is the newest of the inputs that were taken in.
	Conclude(s S, last events.Input, now time.Time) (S, events.Decision)
}

// LaunchSource is a state that holds what its launches and the long parts of its facts were made from, so that the document needs not
// hold them twice: what may not have been told is made again.
type LaunchSource interface {
	// Launched returns the revision of the newest launches; 0 = there are none.
	Launched() uint64
	// Launches makes every launch of a revision above after, in order of node. It asks for the same as when it was decided;
	// what it only informs about may be newer.
	Launches(after uint64) []events.Launch
	// Brief returns a body without what Recall finds in the state; false = it has nothing of it.
	Brief(b events.Body) (events.Body, bool)
	// Recall completes what Brief returned, as long as no input was taken in since.
	Recall(b events.Body) events.Body
}

// Packer is a state that is stored in a shorter form than it is worked on. Neither changes the receiver's own contents.
type Packer[S any] interface {
	Pack() S
	Unpack() (S, error)
}
