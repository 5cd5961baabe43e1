package controller

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Machine is the pure half of a service: it decides, the controller does the rest. S is the state
// of one entity; it is stored as JSON and holds its public view in a field tagged "view".
//
// Step is total: it tolerates repeats, gaps, late and reordered inputs and those of an old
// generation or incarnation. It may modify and return s: after a failed save the controller drops
// it and loads it again. Step reads no clock and no randomness: now and in.Nonce are all it gets.
type Machine[S any] interface {
	// New returns the state of an entity that has no document yet.
	New(entity string) S
	// Step applies one input.
	Step(s S, in events.Input, now time.Time) (S, events.Decision)
	// Deadline returns when Step must be given a Tick even if nothing else happens; zero = never.
	Deadline(s S) time.Time
}

// Batcher is a Machine that applies several inputs before it decides what follows, so that a batch
// costs one pass over the whole state. Step is Apply and Conclude of one input.
type Batcher[S any] interface {
	Machine[S]
	// Apply applies one input: it replies, and changes what the input itself says.
	Apply(s S, in events.Input, now time.Time) (S, events.Decision)
	// Conclude decides what follows from the state as it is now. last is the newest of the inputs
	// that were applied.
	Conclude(s S, last events.Input, now time.Time) (S, events.Decision)
}

// LaunchSource is a state that holds what its launches and the long parts of its facts were made
// of, so that the document need not hold them twice: what may not have been published is made
// again.
type LaunchSource interface {
	// LaunchRevision returns the revision of the newest launches; 0 = there are none.
	LaunchRevision() uint64
	// Launches makes every launch of a revision above after, in order of node. It asks for the same
	// as when it was decided; what is only informative in it may be newer.
	Launches(after uint64) []events.Launch
	// Abbreviate returns a body without what Expand finds in the state; false = the state holds
	// nothing of it.
	Abbreviate(b events.Body) (events.Body, bool)
	// Expand completes what Abbreviate returned, as long as no input was applied since.
	Expand(b events.Body) events.Body
}

// Packer is a state that is stored in a shorter form than it is worked on. Neither method changes
// the receiver's contents.
type Packer[S any] interface {
	Pack() S
	Unpack() (S, error)
}

// Shrinker is a state that can drop some of what it holds. A document that would exceed the limit
// of its store is shrunk until it fits: a decision that cannot be stored would lose what its inputs
// say, for ever.
type Shrinker[S any] interface {
	// Shrink drops what is needed least of what is left and returns true, or false when nothing
	// more can be dropped. It keeps what a LaunchSource makes its launches and facts of.
	Shrink() (S, bool)
}
