package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// row is what the workers of one slot did, one after the other: no two stretches overlap.
type row struct {
	place     ident.Place
	rank      ident.Rank // of the newest worker; NoRank = it has none
	stretches []stretch
	failures  []failure
}

// stretch is a period of one worker.
type stretch struct {
	Stretch
	rank    ident.Rank
	attempt int
}

// failure is the end of a worker that failed.
type failure struct {
	at      time.Time
	what    string
	rank    ident.Rank
	attempt int
}

// rowsOf returns the rows in the order of their slots. Times are by several clocks: a worker that
// seems to begin before the one before it has ended begins when that ended.
func rowsOf(t *Timeline) []row {
	var all []row
	lives := slices.Clone(t.Incarnations)
	slices.SortStableFunc(lives, func(a, b *Incarnation) int {
		return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Attempt, b.Attempt))
	})
	for _, l := range lives {
		if len(all) == 0 || all[len(all)-1].place != l.Place {
			all = append(all, row{place: l.Place})
		}
		r := &all[len(all)-1]
		r.rank = l.Rank
		for _, s := range l.Stretches {
			if n := len(r.stretches); n > 0 && s.From.Before(r.stretches[n-1].To) {
				s.From = r.stretches[n-1].To
			}
			if s.From.Before(s.To) {
				r.stretches = append(r.stretches, stretch{s, l.Rank, l.Attempt})
			}
		}
		if l.Failure != "" && !l.Ended.IsZero() {
			r.failures = append(r.failures, failure{l.Ended, l.Failure, l.Rank, l.Attempt})
		}
	}
	return all
}

// name is the slot with the rank: node-a/0 r2.
func (r row) name() string {
	if r.rank < 0 {
		return r.place.String()
	}
	return fmt.Sprintf("%s r%d", r.place, r.rank)
}

// incidentsOf returns the incidents in the order of their beginnings, so that none begins before
// the one before it has ended. The same holds for their phases.
func incidentsOf(t *Timeline) []Incident {
	all := slices.Clone(t.Incidents)
	slices.SortStableFunc(all, func(a, b Incident) int { return a.From.Compare(b.From) })
	var end time.Time
	after := func(from, to *time.Time) {
		for _, at := range []*time.Time{from, to} {
			if at.Before(end) {
				*at = end
			}
		}
	}
	for n := range all {
		i := &all[n]
		after(&i.From, &i.To)
		i.Phases = slices.Clone(i.Phases)
		for m := range i.Phases {
			after(&i.Phases[m].From, &i.Phases[m].To)
		}
		end = i.To
	}
	return all
}
