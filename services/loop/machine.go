package loop

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
