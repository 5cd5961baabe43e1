package controller

import "github.com/regroup-io/regroup/events"

// Observation is an event worth a log line or a span. Exactly one of Fact, Refusal, Err and Spans
// is set.
type Observation struct {
	Service string
	Entity  string
	Fact    *events.Event // stored, and published or in the outbox
	Refusal error         // a refusal whose reason differs from the last one for this entity
	Err     error         // an operation failed and is retried, or a message was dropped
	Spans   []events.Span // to be exported
}

// observe reports the result of processing.
func (c *Core[S]) observe(entity string, out Result) {
	report := func(o Observation) {
		o.Service, o.Entity = c.o.Service, entity
		c.o.Observe(o)
	}
	for i := range out.Facts {
		report(Observation{Fact: &out.Facts[i]})
	}
	if len(out.Spans) > 0 {
		report(Observation{Spans: out.Spans})
	}
	if out.Unpublished != nil {
		report(Observation{Err: out.Unpublished})
	}
	for _, r := range out.Inputs {
		if r.Refusal != nil && c.refusals[entity] != r.Refusal.Error() {
			c.refusals[entity] = r.Refusal.Error()
			report(Observation{Refusal: r.Refusal})
		}
	}
	if _, ok := c.processor.State(entity); !ok {
		delete(c.refusals, entity)
	}
}
