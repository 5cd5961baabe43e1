package collective

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/internal/control"
)

// TestAlltoallOfUnequalTotals: the totals of the ranks lie on both sides of the size from which on
// messages are large, and the two ends of each connection must agree on the messages all the same.
func TestAlltoallOfUnequalTotals(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		comms := group(t, f, 2, nil)
		counts := [2][2]int{{0, 16<<20 + 5}, {256<<10 + 3, 0}} // from, to; see exec.Config
		mustAll(t, 2, func(r int) error {
			send, recv := make([]byte, counts[r][1-r]), make([]byte, counts[1-r][r])
			for i := range send {
				send[i] = byte(i + r)
			}
			out, in := make([]int, 2), make([]int, 2)
			out[1-r], in[1-r] = len(send), len(recv)
			if err := Alltoall(soon(t), comms[r], send, recv, out, in); err != nil {
				return err
			}
			for i, v := range recv {
				if v != byte(i+1-r) {
					return fmt.Errorf("rank %d: byte %d is %d", r, i, v)
				}
			}
			return nil
		})
	})
}

// TestAlltoallCountsThatDisagreeAreDivergence: rank 0 sends less to the last rank than that
// expects, a whole message less in one case. No rank is lost by that.
func TestAlltoallCountsThatDisagreeAreDivergence(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range []int{2, 4, 7} {
			for _, less := range []int{1, 1000} {
				comms := group(t, fabric{f.name, func(t testing.TB, i int) Transport { return f.listen(t, world*10000+less*10+i) }}, world,
					func(o *Options) { o.ChunkBytes = 1000 })
				start := time.Now()
				errs := each(world, func(r int) error {
					out, in := make([]int, world), make([]int, world)
					for i := range world {
						out[i], in[i] = 2000, 2000
					}
					if r == 0 {
						out[world-1] -= less
					}
					send, recv := make([]byte, sum(out)), make([]byte, sum(in))
					err := Alltoall(soon(t), comms[r], send, recv, out, in)
					return errors.Join(err, comms[r].Barrier(soon(t)))
				})
				for r, err := range errs {
					var d *DivergedError
					if !errors.As(err, &d) || d.Mine == d.Theirs || !strings.Contains(err.Error(), "Alltoall") {
						t.Errorf("world %d, %d bytes less: rank %d: %v", world, less, r, err)
					}
				}
				if took := time.Since(start); took > control.DefaultStallAfter/2 {
					t.Errorf("world %d, %d bytes less: it took %v", world, less, took)
				}
			}
		}
	})
}

func sum(ns []int) (s int) {
	for _, n := range ns {
		s += n
	}
	return s
}
