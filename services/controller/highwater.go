package controller

import "github.com/regroup-io/regroup/events"

// A broker that was given an old copy of its store shows documents of the past. What was decided since is told and done:
// deciding it once more would seal a generation twice. A replica that remembers better therefore decides nothing about such
// a document, and says so. Who starts it again accepts the past.

// met notes a revision of a document.
func (t *Processor[S]) met(entity string, revision uint64) {
	t.newest[entity] = max(t.newest[entity], revision)
}

// past returns why a loaded document must not be built on, or nil.
func (t *Processor[S]) past(entity string, revision uint64) error {
	if newest := t.newest[entity]; revision < newest {
		return events.Errorf(events.Unavailable,
			"%s %s: its document went back from revision %d to %d: the broker runs on an old copy of its store. Bring the newer one back, or start this service again to go on from the old one",
			t.o.Service, entity, newest, revision)
	}
	return nil
}
