package screen

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

const (
	foldFrom = 4 // ranks
	// foldWithin is how far the times may be apart at which lines were stored. An agent stores what
	// it has read every 200 ms, each agent at its own times: of two lines that are printed within
	// 200 ms one can wait for as long as that, and the other not at all.
	foldWithin = 400 * time.Millisecond
	foldFor    = 500 * time.Millisecond // for which a line is held back: others are still on their way
	foldMost   = 4096                   // lines that are held back; of more the oldest are printed sooner
)

// Fold makes one line of equal ones that four or more ranks of a generation print to one stream and
// that are stored within 400 ms. For that it holds each line back until one comes that was stored
// later than that, at most for half a second. The lines of a place stay in their order: what is in
// front of a line that is folded away is printed before it. Other lines stay in the order in which
// they came. The zero value is ready.
type Fold struct {
	order  []*held                            // what is held back, and perhaps lines that were folded away
	places map[ident.Place][]*held            // what is held back of each place, never none
	equal  map[saying]map[ident.Place][]*held // of that what can be folded
	limits map[ident.Place]uint64             // numbers from which on lines of a place are not folded now; 0 = none
	taken  uint64                             // lines
	newest time.Time                          // when the newest of them was stored
	count  int                                // of what is held back
}

// saying is what lines that can be one have in common.
type saying struct {
	generation   ident.Generation
	stream, text string
}

// held is a line that is held back.
type held struct {
	Printed
	number uint64 // among those that were taken
	until  time.Time
	gone   bool
}

func (h *held) saying() saying { return saying{h.Generation, h.Of.Stream, h.Text} }

// Take takes a finished line that comes at a time, and returns the lines that are to be printed
// then.
func (f *Fold) Take(l Printed, at time.Time) []Printed {
	if f.places == nil {
		f.places, f.equal, f.limits = map[ident.Place][]*held{}, map[saying]map[ident.Place][]*held{}, map[ident.Place]uint64{}
	}
	f.taken++
	h := &held{Printed: l, number: f.taken, until: at.Add(foldFor)}
	place, what := l.Of.Place, h.saying()
	f.order, f.places[place] = append(f.order, h), append(f.places[place], h)
	if l.Joint != nil {
		if f.equal[what] == nil {
			f.equal[what] = map[ident.Place][]*held{}
		}
		f.equal[what][place] = append(f.equal[what][place], h)
	}
	f.count++
	if l.Stored.After(f.newest) {
		f.newest = l.Stored
	}
	return f.while(func() bool { return f.count > foldMost || f.due(at) })
}

// Due returns the lines that are to be printed at a time.
func (f *Fold) Due(at time.Time) []Printed {
	return f.while(func() bool { return f.due(at) })
}

// due reports whether the oldest line is to be printed at a time.
func (f *Fold) due(at time.Time) bool {
	oldest := f.order[0]
	return !oldest.until.After(at) || f.newest.Sub(oldest.Stored) > foldWithin
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
		all = append(all, f.next(f.order[0])...)
	}
	return all
}

// next returns the first line of a place, or one that stands for it and for those of other places
// that are equal to it, behind what is in front of them.
func (f *Fold) next(first *held) (all []Printed) {
	same := f.equalTo(first)
	if len(same) < foldFrom {
		f.remove(first)
		return []Printed{first.Printed}
	}
	// What is in front of them can be folded too, but only with what is in front of them.
	outer := make([]uint64, len(same))
	for i, h := range same {
		outer[i], f.limits[h.Of.Place] = f.limits[h.Of.Place], h.number
	}
	for _, h := range same {
		for front := f.places[h.Of.Place][0]; front != h; front = f.places[h.Of.Place][0] {
			all = append(all, f.next(front)...)
		}
	}
	for i, h := range same {
		f.limits[h.Of.Place] = outer[i]
		f.remove(h)
	}
	slices.SortFunc(same, func(a, b *held) int { return cmp.Compare(a.Rank, b.Rank) })
	var ranks []ident.Rank
	l := same[0].Printed
	for i, h := range same {
		ranks = append(ranks, h.Rank)
		if i > 0 {
			l.others = append(l.others, h.Of)
		}
	}
	l.Prefix = l.Joint(ranks)
	return append(all, l)
}

// equalTo returns a line and the first one of each other place with which it can be folded, in the
// order in which they came.
func (f *Fold) equalTo(first *held) []*held {
	same := []*held{first}
	if first.Joint == nil {
		return same
	}
	for place, lines := range f.equal[first.saying()] {
		h, limit := lines[0], f.limits[place]
		if place != first.Of.Place && (limit == 0 || h.number < limit) && h.Stored.Sub(first.Stored).Abs() <= foldWithin {
			same = append(same, h)
		}
	}
	slices.SortFunc(same, func(a, b *held) int { return cmp.Compare(a.number, b.number) })
	return same
}

// remove takes out a line that is the first of its place.
func (f *Fold) remove(h *held) {
	h.gone = true
	f.count--
	drop(f.places, h.Of.Place)
	if what := h.saying(); h.Joint != nil {
		if drop(f.equal[what], h.Of.Place); len(f.equal[what]) == 0 {
			delete(f.equal, what)
		}
	}
	for len(f.order) > 0 && f.order[0].gone {
		f.order = f.order[1:]
	}
}

// drop takes out the first line of a place.
func drop(lines map[ident.Place][]*held, place ident.Place) {
	if len(lines[place]) == 1 {
		delete(lines, place)
	} else {
		lines[place] = lines[place][1:]
	}
}
