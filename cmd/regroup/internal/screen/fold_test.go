package screen

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/e2e/terminal"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// said is a line of a rank on node-a in g1.
func said(rank int, stream, text string) Printed {
	return Palette{}.Line(view.Line{Place: ident.Place{Node: "node-a", Slot: ident.Slot(rank)}, Rank: ident.Rank(rank), Generation: 1, Stream: stream, Text: text})
}

func texts(all []Printed) (out []string) {
	for _, l := range all {
		out = append(out, l.Prefix+l.Text)
	}
	return out
}

// TestFold: what four ranks say at once is one line, and nothing else changes.
func TestFold(t *testing.T) {
	all := func(ranks []int, text string) (lines []Printed) {
		for _, r := range ranks {
			lines = append(lines, said(r, "stdout", text))
		}
		return lines
	}
	later, none := said(3, "stdout", "x"), said(3, "stdout", "x")
	later.Generation, none.Joint = 2, nil
	for name, c := range map[string]struct {
		lines []Printed
		want  []string
	}{
		"eight":               {all([]int{3, 1, 0, 2, 7, 6, 5, 4}, "epoch 3"), []string{"[r0-7 g1] epoch 3"}},
		"with a gap":          {all([]int{0, 1, 2, 3, 6}, "x"), []string{"[r0-3,6 g1] x"}},
		"three":               {all([]int{2, 1, 0}, "x"), []string{"[node-a r2 g1] x", "[node-a r1 g1] x", "[node-a r0 g1] x"}},
		"another stream":      {append(all([]int{0, 1, 2}, "x"), said(3, "stderr", "x")), []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"another generation":  {append(all([]int{0, 1, 2}, "x"), later), []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"without a prefix":    {append(all([]int{0, 1, 2}, "x"), none), []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"one rank four times": {all([]int{0, 0, 0, 0}, "x"), []string{"[node-a r0 g1] x", "[node-a r0 g1] x", "[node-a r0 g1] x", "[node-a r0 g1] x"}},
		"two lines of each":   {append(all([]int{0, 1, 2, 3}, "a"), all([]int{3, 2, 1, 0}, "b")...), []string{"[r0-3 g1] a", "[r0-3 g1] b"}},
		"one after the other": {
			slices.Concat(all([]int{0}, "a"), all([]int{0}, "b"), all([]int{1}, "a"), all([]int{1}, "b"), all([]int{2}, "a"), all([]int{2}, "b"), all([]int{3}, "a"), all([]int{3}, "b")),
			[]string{"[r0-3 g1] a", "[r0-3 g1] b"},
		},
		"behind another one of its rank": {
			slices.Concat(all([]int{0, 1, 2}, "a"), all([]int{3}, "own"), all([]int{3}, "a")),
			[]string{"[node-a r3 g1] own", "[r0-3 g1] a"},
		},
		"each behind one of its own": {
			[]Printed{said(0, "stdout", "0"), said(0, "stdout", "a"), said(1, "stdout", "1"), said(1, "stdout", "a"), said(2, "stdout", "2"), said(2, "stdout", "a"), said(3, "stdout", "3"), said(3, "stdout", "a")},
			[]string{"[node-a r0 g1] 0", "[node-a r1 g1] 1", "[node-a r2 g1] 2", "[node-a r3 g1] 3", "[r0-3 g1] a"},
		},
		"behind one that others print too": {
			slices.Concat(all([]int{0}, "go"), all([]int{1}, "1"), all([]int{1}, "wait"), all([]int{1}, "go"), all([]int{2}, "2"), all([]int{2}, "wait"), all([]int{2}, "go"), all([]int{3, 4}, "wait"), all([]int{3, 4}, "go")),
			[]string{"[node-a r1 g1] 1", "[node-a r2 g1] 2", "[r1-4 g1] wait", "[r0-4 g1] go"},
		},
		"in another order": {
			slices.Concat(all([]int{0}, "a"), all([]int{0}, "b"), all([]int{1}, "b"), all([]int{1}, "a"), all([]int{2}, "b"), all([]int{2}, "a"), all([]int{3}, "b"), all([]int{3}, "a")),
			[]string{"[node-a r1 g1] b", "[node-a r2 g1] b", "[node-a r3 g1] b", "[r0-3 g1] a", "[node-a r0 g1] b"},
		},
	} {
		var f Fold
		for _, l := range c.lines {
			if early := f.Take(l, t0); len(early) > 0 {
				t.Errorf("%s: at once %q", name, texts(early))
			}
		}
		if got := texts(f.Due(t0.Add(foldFor))); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if at, some := f.Deadline(); some || len(f.places) > 0 || len(f.order) > 0 || len(f.equal) > 0 {
			t.Errorf("%s: something is left until %s", name, at)
		}
	}
}

// TestFoldGoesByWhenLinesWereStored: agents store what they read five times a second, so what ranks
// print together comes over 400 ms; what is read from the store long after comes at once.
func TestFoldGoesByWhenLinesWereStored(t *testing.T) {
	const minute = 60_000
	for name, c := range map[string]struct {
		came, stored []int // milliseconds
		want         []string
	}{
		"behind a tick of their agent":    {[]int{0, 1, 205, 206}, []int{0, 1, 203, 204}, []string{"[r0-3 g1] x"}},
		"of four agents":                  {[]int{0, 130, 270, 405}, []int{0, 130, 270, 399}, []string{"[r0-3 g1] x"}},
		"stored later":                    {[]int{0, 1, 2, 405}, []int{0, 1, 2, 401}, []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"too late":                        {[]int{0, 1, 2, 600}, []int{0, 1, 2, 300}, []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"minutes apart, and read at once": {[]int{0, 0, 0, 0}, []int{0, minute, 2 * minute, 3 * minute}, []string{"[node-a r0 g1] x", "[node-a r1 g1] x", "[node-a r2 g1] x", "[node-a r3 g1] x"}},
		"together, and read at once":      {[]int{0, 0, 0, 0, 0}, []int{0, 1, 200, 201, minute}, []string{"[r0-3 g1] x", "[node-a r4 g1] x"}},
	} {
		var f Fold
		var got []string
		at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
		for r, came := range c.came {
			l := said(r, "stdout", "x")
			l.Stored = at(c.stored[r])
			got = append(got, texts(f.Due(at(came)))...)
			got = append(got, texts(f.Take(l, at(came)))...)
		}
		if got = append(got, texts(f.Rest())...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFoldLosesNothing: each line of each rank is in the output once, in its rank's order, no later
// than half a second after it has come.
func TestFoldLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Fold
		now := t0
		came, gone := map[ident.Rank][]string{}, map[ident.Rank][]string{}
		var times []time.Time // of what is held back
		take := func(all []Printed) {
			for _, l := range all {
				ranks := []ident.Rank{l.Rank}
				for _, of := range l.others {
					ranks = append(ranks, ident.Rank(of.Place.Slot))
				}
				if n := len(ranks); n > 1 && n < foldFrom {
					t.Fatalf("a line of %d ranks", n)
				}
				for _, r := range ranks {
					gone[r] = append(gone[r], l.Text)
				}
			}
		}
		count := func() (n int) {
			for r := range came {
				n += len(came[r]) - len(gone[r])
			}
			return n
		}
		for range rapid.IntRange(0, 60).Draw(t, "lines") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "ms")) * time.Millisecond)
			if at, some := f.Deadline(); some && !at.After(now) {
				take(f.Due(now))
			}
			r := rapid.IntRange(0, 5).Draw(t, "rank")
			l := said(r, "stdout", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "text"))
			l.Stored = now.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "on its way")) * time.Millisecond)
			came[l.Rank] = append(came[l.Rank], l.Text)
			times = append(times, now)
			take(f.Take(l, now))
			for len(times) > 0 && !times[0].Add(foldFor).After(now) {
				times = times[1:]
			}
			if left := count(); left > len(times) {
				t.Fatalf("%d are held back, %d have come within %s", left, len(times), foldFor)
			}
		}
		take(f.Rest())
		for r := range came {
			if !slices.Equal(came[r], gone[r]) {
				t.Fatalf("r%d: %q, of %q", r, gone[r], came[r])
			}
		}
	})
}

// TestFoldHoldsSoMuch: of more lines than it may hold back the oldest are printed.
func TestFoldHoldsSoMuch(t *testing.T) {
	var f Fold
	for i := range foldMost + 3 {
		got := texts(f.Take(said(0, "stdout", fmt.Sprint(i)), t0))
		if i < foldMost && len(got) > 0 || i >= foldMost && !slices.Equal(got, []string{fmt.Sprintf("[node-a r0 g1] %d", i-foldMost)}) {
			t.Fatalf("line %d prints %q", i, got)
		}
	}
}

// TestStickyFolds on a terminal, without anything that comes after: its time comes by itself.
func TestStickyFolds(t *testing.T) { synctest.Test(t, stickyFolds) }

func stickyFolds(t *testing.T) {
	w := &terminal.Screen{Width: 60}
	s := NewSticky(w, true, func() time.Time { return t0 })
	s.Fold(w)
	bar := said(2, "stderr", "10%")
	bar.Open = true
	line(t, s, w, bar)
	for r := range 8 {
		line(t, s, w, said(r, "stdout", "epoch 3"))
	}
	now := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return w.String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want := "[r0-7 g1] epoch 3\n[node-a r2 g1] 10%\n"
	if err := wait.Until(ctx, time.Millisecond, func() (bool, error) { return now() == want, nil }); err != nil {
		t.Fatalf("%v: it shows\n%s", err, now())
	}
	for r := range 4 {
		line(t, s, w, said(r, "stderr", "100%")) // also the line of the bar
	}
	if err := s.Above(w, "r3 died"); err != nil {
		t.Fatal(err)
	}
	want = strings.Replace(want, "[node-a r2 g1] 10%\n", "[r0-3 g1] 100%\nr3 died\n", 1)
	if got := now(); got != want {
		t.Fatalf("it shows\n%s, want\n%s", got, want)
	}
	line(t, s, w, said(2, "stderr", "then"))
	line(t, s, w, bar) // after what is held back of its source
	line(t, s, w, said(2, "stdout", "last"))
	if err := s.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := now(); got != want+"[node-a r2 g1] then\n[node-a r2 g1] last\n[node-a r2 g1] 10%\n" {
		t.Fatalf("it shows\n%s", got)
	}
}

// TestOnlyTerminalsFold: what goes elsewhere is written at once.
func TestOnlyTerminalsFold(t *testing.T) {
	w := &terminal.Screen{Width: 60}
	s := NewSticky(w, true, func() time.Time { return t0 })
	s.Fold(w)
	for r := range 4 {
		if err := s.Line(w, false, said(r, "stdout", "x")); err != nil {
			t.Fatal(err)
		}
	}
	shows(t, w, "[node-a r0 g1] x\n[node-a r1 g1] x\n[node-a r2 g1] x\n[node-a r3 g1] x\n")
}
