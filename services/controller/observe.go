package controller

import "github.com/regroup-io/regroup/events"

// Observation is one thing worth a log line or a span. Exactly one of Fact, Refusal, Err and Spans is set.
type Observation struct {
	Service string
	Entity  string
	Fact    *events.Event // stored and on its way
	Refusal error         // a "no" whose reason has changed since the last one for this entity
	Err     error         // something failed and is tried again, or a message was dropped
	Spans   []events.Span // to be drawn
}

// observe reports what a turn has led to.
func (h *Host[S]) observe(entity string, out Result) {
	say := func(o Observation) {
		o.Service, o.Entity = h.o.Service, entity
		h.o.Observe(o)
	}
	for i := range out.Facts {
		say(Observation{Fact: &out.Facts[i]})
	}
	if len(out.Spans) > 0 {
		say(Observation{Spans: out.Spans})
	}
	if out.Untold != nil {
		say(Observation{Err: out.Untold})
	}
	for _, a := range out.Answers {
		if a.Refusal != nil && h.said[entity] != a.Refusal.Error() {
			h.said[entity] = a.Refusal.Error()
			say(Observation{Refusal: a.Refusal})
		}
	}
	if _, ok := h.turner.State(entity); !ok {
		delete(h.said, entity)
	}
}
