package reproducible

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/collective"
)

// dealing is the micro-batches of a pass over a step's, as one rank sees them. In a new generation
// the ranks say what they have computed, and deal out the rest. While the members stay the same
// nothing is said: each knows its share.
type dealing struct {
	pass int    // the number of passes over the step's micro-batches that have ended
	done []bool // by this rank, in this pass
	left []int  // what no rank had computed when the pass began or the members changed
}

// begin begins a pass in which nothing was computed yet.
func (d *dealing) begin(pass, count int) {
	d.pass, d.done, d.left = pass, make([]bool, count), make([]int, count)
	for m := range d.left {
		d.left[m] = m
	}
}

// size returns how many micro-batches the pass deals out.
func (d *dealing) size() int { return len(d.left) }

// share returns what a rank computes, with a share of these sizes for each rank.
func (d *dealing) share(rank int, sizes []int) []int {
	start := total(sizes[:rank])
	return d.left[start : start+sizes[rank]]
}

// said is what a rank says in a new generation.
type said struct {
	What  string    `json:"what"` // must be the same on all ranks
	Pass  int       `json:"pass"`
	Done  []int     `json:"done"`            // that it has computed in this pass
	Found []float32 `json:"found,omitempty"` // magnitudes that the passes before have found
}

func (d *dealing) say(what string, found []float32) said {
	x := said{What: what, Pass: d.pass, Found: found}
	for m, computed := range d.done {
		if computed {
			x.Done = append(x.Done, m)
		}
	}
	return x
}

// agreed is what follows from what all have said.
type agreed struct {
	pass  int
	found []float32
	done  map[int]bool
	keeps bool // what this rank has computed counts
}

func agree(rows []said, rank int) (agreed, error) {
	x := agreed{done: map[int]bool{}, keeps: true}
	for r, row := range rows {
		if row.What != rows[0].What {
			return x, fmt.Errorf("rank %d has %s, and rank 0 %s: %w", r, row.What, rows[0].What, collective.ErrDiverged)
		}
		if row.Pass > x.pass {
			x.pass, x.found = row.Pass, row.Found
		}
	}
	for r, row := range rows {
		// One that was away may have computed what others have computed in its place.
		twice := slices.ContainsFunc(row.Done, func(m int) bool { return x.done[m] })
		if row.Pass < x.pass || twice {
			x.keeps = x.keeps && r != rank
			continue
		}
		for _, m := range row.Done {
			x.done[m] = true
		}
	}
	return x, nil
}

// adopt continues as agreed, of count micro-batches.
func (d *dealing) adopt(x agreed, count int) {
	before := d.done
	d.begin(x.pass, count)
	if x.keeps {
		d.done = before
	}
	d.left = slices.DeleteFunc(d.left, func(m int) bool { return x.done[m] })
}
