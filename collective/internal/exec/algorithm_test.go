package exec

import (
	"testing"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// TestTableIsObeyed: a table that names an algorithm for an operation makes the operation use it.
func TestTableIsObeyed(t *testing.T) {
	for m := frame.Allreduce; m <= frame.Barrier; m++ {
		for _, a := range []Algorithm{Direct, Doubling, Halving, Ring, Tree, Bruck} {
			for _, world := range []int{1, 2, 3, 4, 5, 7, 8} {
				for _, bytes := range []int{0, 1000, 100 << 20} {
					c := Config{World: world, Table: []Rule{{Operation: m.String(), Algorithm: a}}}
					if got := c.algorithm(m, world, bytes); got != a {
						t.Errorf("%s of %d bytes among %d: %s, not %s", m, bytes, world, got, a)
					}
				}
			}
		}
	}
	c := Config{World: 3, Table: []Rule{{"Allreduce", 2, 0, Direct}, {"Allreduce", 0, 10, Doubling}, {"Allreduce", 3, 100, Halving}}}
	for bytes, want := range map[int]Algorithm{10: Doubling, 11: Halving, 100: Halving, 101: Direct} {
		if got := c.algorithm(frame.Allreduce, c.World, bytes); got != want {
			t.Errorf("%d bytes: %s, not %s", bytes, got, want)
		}
	}
}
