package logs

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/english"
)

// TestChunk: however lines are divided into chunks that are joined, all finished ones and marks are
// there, of the open ones the last one alone if nothing follows, and the counts are right.
func TestChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all, next part
		var want []output.Line
		finished, gaps := 0, 0
		for i := range rapid.IntRange(0, 30).Draw(t, "steps") {
			if n := len(want); n > 0 && want[n-1].Open {
				want = want[:n-1]
			}
			if n := rapid.IntRange(0, 5).Draw(t, "kind"); n == 0 {
				next.gap(i)
				gaps += i
				want = append(want, output.Line{Text: fmt.Sprintf("regroup: %s dropped here, the log store was too slow", english.Plural(i, "line"))})
			} else {
				l := output.Line{Text: fmt.Sprintf("line %d", i), Open: n > 3}
				next.put(l)
				want = append(want, l)
				if !l.Open {
					finished++
				}
			}
			if rapid.Bool().Draw(t, "join") {
				all.join(next)
				next = part{}
			}
		}
		all.join(next)
		passing := len(want) == 1 && want[0].Open
		if got := slices.Collect(output.Lines(all.data)); !slices.Equal(got, want) || all.lines != finished || all.gaps != gaps || all.passing() != passing {
			t.Fatalf("%v with %d lines, %d missing and passing: %t; want %v, %d, %d and %t", got, all.lines, all.gaps, all.passing(), want, finished, gaps, passing)
		}
	})
}
