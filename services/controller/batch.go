package controller

import "github.com/regroup-io/regroup/events"

// batch groups inputs by the entities that they concern, in the order of arrival.
type batch struct {
	order []string
	parts map[string][]*part
}

// part is one input of a batch. It may concern several entities and is settled once, when all of them have answered.
type part struct {
	input  events.Input
	settle func(InputResult, error) // may be nil
	left   int
	result InputResult
	err    error
}

// add adds an input for these entities. With none it is settled at once as unrouted.
func (b *batch) add(in events.Input, entities []string, settle func(InputResult, error)) {
	p := &part{input: in, left: len(entities), settle: settle}
	if len(entities) == 0 {
		p.done(InputResult{}, ErrUnrouted)
	}
	for _, e := range entities {
		if b.parts[e] == nil {
			if b.parts == nil {
				b.parts = map[string][]*part{}
			}
			b.order = append(b.order, e)
		}
		b.parts[e] = append(b.parts[e], p)
	}
}

func inputsOf(parts []*part) []events.Input {
	in := make([]events.Input, len(parts))
	for i, p := range parts {
		in[i] = p.input
	}
	return in
}

// settle passes the result of an entity's inputs to the parts.
func settle(parts []*part, out Result, err error) {
	for i, p := range parts {
		if err != nil {
			p.done(InputResult{}, err)
		} else {
			p.done(out.Inputs[i], nil)
		}
	}
}

func (p *part) done(r InputResult, err error) {
	if p.result.Reply == nil {
		p.result.Reply = r.Reply
	}
	if p.result.Refusal == nil {
		p.result.Refusal = r.Refusal
	}
	p.result.Facts += r.Facts
	if p.err == nil {
		p.err = err
	}
	if p.left--; p.left <= 0 && p.settle != nil {
		p.settle(p.result, p.err)
	}
}
