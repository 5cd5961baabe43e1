package timeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/internal/english"
)

// bins is how many periods the row of all other slots has.
const bins = (axisTo - axisFrom) / 4

// share is how much of a period slots spent with each activity: the sum is at most 1, and less
// while some had no worker.
type share map[Doing]float64

// others draws a row for all slots that have none of their own: for each period which part of them
// did what.
func (p *picture) others(all []row) {
	failed := 0
	for _, r := range all {
		failed += len(r.failures)
	}
	what := "none of which failed"
	if failed > 0 {
		what = "with " + english.Plural(failed, "failure")
	}
	p.label(p.y+rowHeight-2, "", english.Plural(len(all), "other slot"))
	p.label(p.y+rowHeight+12, "faint", what)
	fmt.Fprintf(p, "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", axisFrom, p.y, axisTo-axisFrom, othersHigh)
	shares := sharesOf(all, p.t.Start, p.total())
	for from := 0; from < bins; {
		to := from + 1
		for to < bins && same(shares[from], shares[to]) {
			to++
		}
		top := float64(p.y + othersHigh)
		for _, d := range drawingOrder {
			part := shares[from][d]
			if part <= 0 {
				continue
			}
			high := part * othersHigh
			top -= high
			at := func(bin int) time.Time { return p.t.Start.Add(p.total() / bins * time.Duration(bin)) }
			fmt.Fprintf(p, "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"><title>%s</title></rect>\n", d, number(axisFrom+4*float64(from)), number(top), number(4*float64(to-from)), number(high),
				safe(p.period(fmt.Sprintf("%.0f %% of %s: %s", 100*part, english.Plural(len(all), "slot"), doingText(d)), at(from), at(to))))
		}
		from = to
	}
	p.y += othersHigh + rowEvery - rowHeight
}

func same(a, b share) bool {
	return !slices.ContainsFunc(drawingOrder, func(d Doing) bool { return a[d]-b[d] > 0.005 || b[d]-a[d] > 0.005 })
}

// sharesOf returns the shares of each of the periods.
func sharesOf(all []row, start time.Time, total time.Duration) []share {
	out := make([]share, bins)
	for i := range out {
		out[i] = share{}
	}
	each := float64(total) / bins
	for _, r := range all {
		for _, s := range r.stretches {
			from, to := float64(s.From.Sub(start))/each, float64(s.To.Sub(start))/each
			for i := max(0, int(from)); i < bins && float64(i) < to; i++ {
				out[i][s.Doing] += (min(to, float64(i+1)) - max(from, float64(i))) / float64(len(all))
			}
		}
	}
	return out
}
