package statehash

import (
	"slices"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// hashes are those of a job: of each step the hash of two tensors.
func hashes(job ident.JobID, of map[uint64][2]string) Hashes {
	var h Hashes
	for step, two := range of {
		b := events.WorkerHashed{
			StateHash: tables.StateHash{Step: step, Hash: two[0] + two[1]}, Tensors: map[string]string{"a": two[0], "b": two[1]},
			Dealt: []tables.DealtSteps{{First: step - 10, Last: step - 1, Generation: 1, Ranks: []int{0, 1}, Again: new(step / 20)}},
		}
		b.Job = job
		h.Add(b)
	}
	return h
}

func TestTheFirstDifferenceIsNamed(t *testing.T) {
	a := hashes("a-0001", map[uint64][2]string{10: {"1", "2"}, 20: {"3", "4"}, 30: {"5", "6"}, 40: {"7", "8"}})
	b := hashes("b-0001", map[uint64][2]string{10: {"1", "2"}, 30: {"5", "0"}, 40: {"0", "8"}})
	c := Compare(a, b)
	if c.Same || c.First == nil || c.First.Step != 30 || *c.First.Before != 10 || !slices.Equal(c.First.Tensors, []string{"b"}) {
		t.Fatalf("got %+v, first %+v", c, c.First)
	}
	// Of the first job both entries after step 10, of the second that of steps 20 to 29.
	if len(c.First.Dealt[0]) != 2 || len(c.First.Dealt[1]) != 1 || c.First.Dealt[1][0].First != 20 {
		t.Errorf("dealt %+v", c.First.Dealt)
	}
	if c.Again[0] == nil || *c.Again[0] != 0+1+1+2 {
		t.Errorf("again %v", c.Again[0])
	}
	if c.Again[1] != nil {
		t.Errorf("of steps 10 to 19 nothing is known, and again is %d", *c.Again[1])
	}
	if d := Compare(b, a); d.First == nil || d.First.Step != 30 {
		t.Errorf("the other way round %+v", d)
	}
}

func TestEqualStates(t *testing.T) {
	a := hashes("a-0001", map[uint64][2]string{10: {"1", "2"}, 20: {"3", "4"}})
	b := hashes("b-0001", map[uint64][2]string{20: {"3", "4"}, 30: {"5", "6"}})
	c := Compare(a, b)
	if !c.Same || !slices.Equal(c.Steps, []uint64{20}) || c.Final.Step != 20 || *c.Newest[1] != 30 {
		t.Errorf("got %+v", c)
	}
	// A step that was made again counts as it was made last.
	redone := events.WorkerHashed{StateHash: tables.StateHash{Step: 20, Hash: "99"}}
	redone.Job = "b-0001"
	b.Add(redone)
	if c = Compare(a, b); c.Same || c.First.Before != nil {
		t.Errorf("got %+v", c)
	}
	if c = Compare(a, hashes("c-0001", map[uint64][2]string{15: {"1", "2"}})); c.Same || c.First != nil || len(c.Steps) != 0 {
		t.Errorf("without a step in common it is %+v", c)
	}
}

func TestDealtText(t *testing.T) {
	for want, d := range map[string]tables.DealtSteps{
		"steps 3 to 9, g2: r0 0-2, r1 3 5, r2 4":                          {First: 3, Last: 9, Generation: 2, Ranks: []int{0, 0, 0, 1, 2, 1}},
		"step 3, g2: r1 0-1; 1 micro-batch dealt again":                   {First: 3, Last: 3, Generation: 2, Ranks: []int{1, 1}, Again: new(uint64(1))},
		"steps 0 to 1, g1: r0 0":                                          {First: 0, Last: 1, Generation: 1, Ranks: []int{0}, Again: new(uint64(0))},
		"steps 0 to 1, g1: r0 0 2 4, r1 1 3; 2 micro-batches dealt again": {First: 0, Last: 1, Generation: 1, Ranks: []int{0, 1, 0, 1, 0}, Again: new(uint64(2))},
	} {
		if got := DealtText(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
