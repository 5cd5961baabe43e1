package controller

import "github.com/regroup-io/regroup/events"

// Batch is inputs on their way to the entities that they concern. Whoever plays a host uses it as the host does.
type Batch struct {
	order []string
	parts map[string][]*Part
}

// Part is one input of a batch. It may concern several entities, and is settled once, when all of them have answered.
type Part struct {
	Input  events.Input
	settle func(InputResult, error) // may be nil
	left   int
	answer InputResult
	err    error
}

// Add takes in an input for these entities; for none it is settled at once as concerning nothing.
func (b *Batch) Add(in events.Input, entities []string, settle func(InputResult, error)) {
	p := &Part{Input: in, left: len(entities), settle: settle}
	if len(entities) == 0 {
		p.done(InputResult{}, ErrUnrouted)
	}
	for _, e := range entities {
		if b.parts[e] == nil {
			if b.parts == nil {
				b.parts = map[string][]*Part{}
			}
			b.order = append(b.order, e)
		}
		b.parts[e] = append(b.parts[e], p)
	}
}

// Each calls turn with the parts of every entity, in the order of arrival, until it returns false.
func (b *Batch) Each(turn func(entity string, parts []*Part) bool) {
	for _, e := range b.order {
		if !turn(e, b.parts[e]) {
			return
		}
	}
}

// Inputs are those of the parts.
func Inputs(parts []*Part) []events.Input {
	in := make([]events.Input, len(parts))
	for i, p := range parts {
		in[i] = p.Input
	}
	return in
}

// Settle tells the parts what came of a turn with their inputs.
func Settle(parts []*Part, out Result, err error) {
	for i, p := range parts {
		if err != nil {
			p.done(InputResult{}, err)
		} else {
			p.done(out.Answers[i], nil)
		}
	}
}

func (p *Part) done(a InputResult, err error) {
	if p.answer.Reply == nil {
		p.answer.Reply = a.Reply
	}
	if p.answer.Refusal == nil {
		p.answer.Refusal = a.Refusal
	}
	p.answer.Facts += a.Facts
	if p.err == nil {
		p.err = err
	}
	if p.left--; p.left <= 0 && p.settle != nil {
		p.settle(p.answer, p.err)
	}
}
