package controller

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Machine is the pure half of a service: it decides, the controller does the rest. S is the state
// of one entity; it is stored as JSON and has its public view in a field tagged "view".
//
// Step is total: it tolerates repeated, missing, late and reordered inputs, and those of an old
// generation or incarnation. It may modify and return s: after a failed save the controller drops
// it and loads it again. Step reads no clock and no randomness other than now and in.Nonce.
type Machine[S any] interface {
	// New returns the state of an entity that has no document yet.
	New(entity string) S
	// Step applies one input.
	Step(s S, in events.Input, now time.Time) (S, events.Decision)
	// Deadline returns when Step must be given a Tick even without other inputs; zero = never.
	Deadline(s S) time.Time
}

// Batcher is a Machine that applies several inputs before it decides what follows, so that a batch
// costs one pass over the whole state. Step is Apply and Conclude of one input.
type Batcher[S any] interface {
	Machine[S]
	// Apply applies one input itself and replies to it.
	Apply(s S, in events.Input, now time.Time) (S, events.Decision)
	// Conclude decides what follows from the present state. last is the newest applied input.
	Conclude(s S, last events.Input, now time.Time) (S, events.Decision)
}

// LaunchSource is a state from which its launches and the long parts of its facts can be rebuilt,
// so that the document need not hold them twice.
type LaunchSource interface {
	// LaunchRevision returns the revision of the newest launches; 0 = there are none.
	LaunchRevision() uint64
	// Launches returns every launch of a revision above after, in order of node. Each asks for the
	// same as when it was decided; informative parts may be newer.
	Launches(after uint64) []events.Launch
	// Abbreviate returns a body without the parts that Expand can restore; false = there are none.
	Abbreviate(b events.Body) (events.Body, bool)
	// Expand restores what Abbreviate removed, as long as no input was applied since.
	Expand(b events.Body) events.Body
}

// Packer is a state with a shorter stored form. Neither method changes the receiver's contents.
type Packer[S any] interface {
	Pack() S
	Unpack() (S, error)
}

// Shrinker is a state that can drop parts of its contents. A document that exceeds the limit of its
// bucket is shrunk until it fits: a decision that cannot be stored would lose its inputs.
type Shrinker[S any] interface {
	// Shrink drops the least needed of the remaining contents and returns true, or false if nothing
	// more can be dropped. It keeps what a LaunchSource needs for its launches and facts.
	Shrink() (S, bool)
}
