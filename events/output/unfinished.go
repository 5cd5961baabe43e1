package output

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// Source is where lines come from that replace each other.
type Source struct {
	Place  ident.Place
	Stream string
}

// Unfinished keeps the newest open line of each source. The zero value is ready.
type Unfinished[L any] struct {
	open []entry[L] // the oldest first; few at a time
}

type entry[L any] struct {
	of   Source
	line L
}

// Take takes the next line of a source, after which the one before is gone.
func (u *Unfinished[L]) Take(of Source, open bool, line L) {
	u.open = slices.DeleteFunc(u.open, func(e entry[L]) bool { return e.of == of })
	if open {
		u.open = append(u.open, entry[L]{of, line})
	}
}

// All returns what no line has replaced.
func (u *Unfinished[L]) All() []L {
	var all []L
	for _, e := range u.open {
		all = append(all, e.line)
	}
	return all
}

// PaceEvery is how often a Pace lets an open line through.
const PaceEvery = 30 * time.Second

// Pace chooses the lines for readers who cannot replace one, such as a file or the log of a CI job:
// all that are finished, and of one that is not a state every PaceEvery. The zero value is ready.
type Pace struct {
	shown map[Source]time.Time // when the newest state was let through, or the line has begun
}

// Takes reports whether a line that has come at a time is let through.
func (p *Pace) Takes(of Source, open bool, at time.Time) bool {
	if !open {
		delete(p.shown, of)
		return true
	}
	last, begun := p.shown[of]
	if begun && at.Sub(last) < PaceEvery {
		return false
	}
	if p.shown == nil {
		p.shown = map[Source]time.Time{}
	}
	p.shown[of] = at
	return begun
}
