package screen

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

const (
	foldFrom   = 4 // ranks
	foldWithin = 200 * time.Millisecond
	foldMost   = 4096 // lines that are held back; of more the oldest are printed sooner
)

// Fold makes one line of equal ones that four or more ranks of a generation print to one stream
// within 200 ms. For that it holds each line back, at most as long. The lines of a place stay in
// their order, and lines that are not folded in that in which they came. The zero value is ready.
type Fold struct {
	order  []*held                 // what is held back, and perhaps lines that were folded away
	places map[ident.Place][]*held // what is held back of each place, never none
	count  int                     // of what is held back
}

// held is a line that is held back.
type held struct {
	Printed
	until time.Time
	gone  bool
}

// Take takes a finished line that comes at a time, and returns the lines that are to be printed
// then.
func (f *Fold) Take(l Printed, at time.Time) []Printed {
	h := &held{Printed: l, until: at.Add(foldWithin)}
	if f.places == nil {
		f.places = map[ident.Place][]*held{}
	}
	f.order, f.places[l.Of.Place] = append(f.order, h), append(f.places[l.Of.Place], h)
	f.count++
	return f.while(func() bool { return f.count > foldMost || !f.order[0].until.After(at) })
}

// Due returns the lines that are to be printed at a time.
func (f *Fold) Due(at time.Time) []Printed {
	return f.while(func() bool { return !f.order[0].until.After(at) })
}

// Deadline returns when the next lines are due; false if there are none.
func (f *Fold) Deadline() (time.Time, bool) {
	if f.count == 0 {
		return time.Time{}, false
	}
	return f.order[0].until, true
}

// Of returns the lines up to the last one of a source.
func (f *Fold) Of(s output.Source) []Printed {
	return f.while(func() bool {
		return slices.ContainsFunc(f.places[s.Place], func(h *held) bool { return h.Of == s })
	})
}

// Rest returns all lines.
func (f *Fold) Rest() []Printed {
	return f.while(func() bool { return true })
}

// while returns lines as long as there are some and more holds.
func (f *Fold) while(more func() bool) (all []Printed) {
	for f.count > 0 && more() {
		all = append(all, f.next())
	}
	return all
}

// next returns the oldest line, or one that stands for it and for those of other places that are
// equal to it. Only what is the first of its place can be one of them, so that none gets before
// another one of its place.
func (f *Fold) next() Printed {
	first := f.order[0]
	same := []*held{first}
	if first.Joint != nil {
		for _, lines := range f.places {
			if h := lines[0]; h != first && h.Joint != nil && h.Text == first.Text && h.Generation == first.Generation && h.Of.Stream == first.Of.Stream {
				same = append(same, h)
			}
		}
	}
	if len(same) < foldFrom {
		f.remove(first)
		return first.Printed
	}
	slices.SortFunc(same, func(a, b *held) int { return cmp.Compare(a.Rank, b.Rank) })
	var ranks []ident.Rank
	l := same[0].Printed
	for i, h := range same {
		ranks = append(ranks, h.Rank)
		if i > 0 {
			l.others = append(l.others, h.Of)
		}
		f.remove(h)
	}
	l.Prefix = l.Joint(ranks)
	return l
}

// remove takes out a line that is the first of its place.
func (f *Fold) remove(h *held) {
	h.gone = true
	f.count--
	if place := h.Of.Place; len(f.places[place]) == 1 {
		delete(f.places, place)
	} else {
		f.places[place] = f.places[place][1:]
	}
	for len(f.order) > 0 && f.order[0].gone {
		f.order = f.order[1:]
	}
}
