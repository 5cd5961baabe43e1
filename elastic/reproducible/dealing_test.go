package reproducible

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective"
)

func TestShares(t *testing.T) {
	for _, c := range []struct {
		left  []int
		world int
		want  [][]int
	}{
		{[]int{0, 1, 2, 3, 4, 5, 6}, 3, [][]int{{0, 1, 2}, {3, 4}, {5, 6}}},
		{[]int{2, 5}, 3, [][]int{{2}, {5}, {}}},
		{nil, 2, [][]int{{}, {}}},
		{[]int{4}, 1, [][]int{{4}}},
	} {
		d := dealing{left: c.left}
		for r, want := range c.want {
			if got := d.share(r, even(len(c.left), c.world)); !slices.Equal(got, want) {
				t.Errorf("%v for %d: rank %d gets %v, want %v", c.left, c.world, r, got, want)
			}
		}
	}
}

func TestAgree(t *testing.T) {
	row := func(pass int, done ...int) said { return said{What: "it", Pass: pass, Done: done} }
	late := row(1, 0, 2)
	late.Found = []float32{7}
	for name, c := range map[string]struct {
		rows  []said
		pass  int
		left  []int // of five
		keeps []bool
	}{
		"nothing was computed":       {[]said{row(0), row(0)}, 0, []int{0, 1, 2, 3, 4}, []bool{true, true}},
		"a rank is new":              {[]said{row(0, 0, 1), row(0)}, 0, []int{2, 3, 4}, []bool{true, true}},
		"all but a dead rank's":      {[]said{row(0, 0), row(0, 3, 4)}, 0, []int{1, 2}, []bool{true, true}},
		"all is there":               {[]said{row(0, 0, 2, 4), row(0, 1, 3)}, 0, nil, []bool{true, true}},
		"a rank was away":            {[]said{row(0, 0, 1), row(0, 1, 2), row(0, 3)}, 0, []int{2, 4}, []bool{true, false, true}},
		"the next pass has begun":    {[]said{row(0, 0, 1), late, row(0, 2)}, 1, []int{1, 3, 4}, []bool{false, true, false}},
		"two of three were computed": {[]said{row(0, 1), row(0, 1), row(0, 1)}, 0, []int{0, 2, 3, 4}, []bool{true, false, false}},
	} {
		for r := range c.rows {
			x, err := agree(c.rows, r)
			if err != nil {
				t.Fatal(err)
			}
			var d dealing
			d.begin(0, 5)
			for _, m := range c.rows[r].Done {
				d.done[m] = true
			}
			d.adopt(x, 5)
			if x.pass != c.pass || x.keeps != c.keeps[r] || !slices.Equal(d.left, c.left) {
				t.Errorf("%s, rank %d: pass %d, keeps %v, left %v", name, r, x.pass, x.keeps, d.left)
			}
			if kept := len(d.say("", nil).Done); x.keeps && kept != len(c.rows[r].Done) || !x.keeps && kept > 0 {
				t.Errorf("%s: rank %d has kept %d", name, r, kept)
			}
			if x.pass == 1 && !slices.Equal(x.found, late.Found) {
				t.Errorf("%s: rank %d does not get what the pass has found", name, r)
			}
		}
	}
	if _, err := agree([]said{row(0), {What: "something else"}}, 0); !errors.Is(err, collective.ErrDiverged) {
		t.Errorf("ranks that do not do the same: %v", err)
	}
}

// TestEachIsDealtOnce: whatever the ranks say, each micro-batch is counted once in the end.
func TestEachIsDealtOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		count, world := 1+rng.IntN(20), 1+rng.IntN(6)
		rows := make([]said, world)
		for r := range rows {
			rows[r] = said{Pass: rng.IntN(2)}
			for m := range count {
				if rng.IntN(4) == 0 {
					rows[r].Done = append(rows[r].Done, m)
				}
			}
		}
		counted := make([]int, count)
		for r := range rows {
			x, err := agree(rows, r)
			if err != nil {
				t.Fatal(err)
			}
			var d dealing
			d.begin(rows[r].Pass, count)
			for _, m := range rows[r].Done {
				d.done[m] = true
			}
			d.adopt(x, count)
			for _, m := range d.share(r, even(len(d.left), world)) {
				d.done[m] = true
			}
			for m, done := range d.done {
				if done {
					counted[m]++
				}
			}
		}
		if slices.Min(counted) != 1 || slices.Max(counted) != 1 {
			t.Fatalf("%+v: counted %v", rows, counted)
		}
	}
}
