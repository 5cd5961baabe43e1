package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/collective/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the test hangs"))
	t.Cleanup(cancel)
	return ctx
}

func each(t *testing.T, n int, do func(rank int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// queues are those of a new generation.
func queues(t *testing.T, world int, change func(rank int, o *Options)) []*Queue {
	t.Helper()
	network := inproc.NewNetwork()
	eps := make([]*collective.Endpoint, world)
	for i := range eps {
		l, err := network.Listen(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		eps[i] = collective.NewEndpoint(l)
		t.Cleanup(func() { _ = eps[i].Close() })
	}
	all, comms := make([]*Queue, world), make([]*collective.Communicator, world)
	each(t, world, func(rank int) (err error) {
		comms[rank], err = collective.New(soon(t), collective.Options{
			Job: "queue", Generation: 1, Rank: rank, World: world, Endpoint: eps[rank], StallAfter: 2 * time.Second,
			Peers: func(_ context.Context, r int) (string, error) { return eps[r].Addr(), nil },
		})
		if err != nil {
			return err
		}
		o := Options{Comm: comms[rank]}
		if change != nil {
			change(rank, &o)
		}
		all[rank] = New(o)
		return nil
	})
	t.Cleanup(func() {
		each(t, world, func(rank int) error {
			all[rank].Close()
			return comms[rank].Close()
		})
	})
	return all
}

func TestRanksMaySubmitInAnyOrder(t *testing.T) {
	const world, names = 3, 40
	for _, threshold := range []int{0, -1, 5000} {
		all := queues(t, world, func(_ int, o *Options) { o.ThresholdBytes = threshold })
		each(t, world, func(rank int) error {
			rng := rand.New(rand.NewPCG(uint64(rank), 0)) // another order on each rank
			for step := range 10 {
				tensors, handles := make([][]float32, names), make([]*Handle, names)
				for _, i := range rng.Perm(names) {
					tensors[i] = slices.Repeat([]float32{float32(rank + i + step)}, 1+37*i)
					op, wire := collective.Sum, kernel.Type(0)
					if i%3 == 0 {
						op = collective.Max
					}
					if i%5 == 0 {
						wire = kernel.Float16
					}
					handles[i] = all[rank].Allreduce(fmt.Sprint("gradient ", i), "", collective.Of(tensors[i]), op, wire)
				}
				for i, h := range handles {
					if err := h.Wait(soon(t)); err != nil {
						return err
					}
					want := float32(world*(i+step) + world*(world-1)/2)
					if i%3 == 0 {
						want = float32(world - 1 + i + step)
					}
					if k := slices.IndexFunc(tensors[i], func(v float32) bool { return v != want }); k >= 0 {
						return fmt.Errorf("threshold %d, rank %d, step %d, tensor %d: element %d is %v, not %v", threshold, rank, step, i, k, tensors[i][k], want)
					}
				}
			}
			return nil
		})
	}
}

func TestAnyOperationCanBeSubmitted(t *testing.T) {
	all := queues(t, 2, nil)
	each(t, 2, func(rank int) error {
		value, sum := []int64{int64(rank)}, []int64{1}
		submit := []func() *Handle{
			func() *Handle {
				return all[rank].Do("value", "broadcast of 1 int64 from 1", func(ctx context.Context, c *collective.Communicator) error {
					return collective.Broadcast(ctx, c, value, 1)
				})
			},
			func() *Handle { return all[rank].Allreduce("sum", "", collective.Of(sum), collective.Sum, 0) },
		}
		handles := []*Handle{submit[rank](), submit[1-rank]()}
		for _, h := range handles {
			if err := h.Wait(soon(t)); err != nil {
				return err
			}
		}
		if value[0] != 1 || sum[0] != 2 {
			return fmt.Errorf("rank %d: %v %v", rank, value, sum)
		}
		return nil
	})
}

func TestDifferentThingsUnderOneNameAreAnErrorEverywhere(t *testing.T) {
	all := queues(t, 3, nil)
	each(t, 3, func(rank int) error {
		err := all[rank].Allreduce("x", "", collective.Of(make([]float32, 3+rank/2)), collective.Sum, 0).Wait(soon(t))
		var m *MismatchError
		if !errors.As(err, &m) || m.Name != "x" || m.Kinds[0] == m.Kinds[2] || m.Kinds[0] != m.Kinds[1] {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		// The queue goes on, also with this name.
		return all[rank].Allreduce("x", "", collective.Of(make([]float32, 3)), collective.Sum, 0).Wait(soon(t))
	})
}

// TestANameMayMeanSomethingElseLater: what was right for a name once is not taken for what it is
// now.
func TestANameMayMeanSomethingElseLater(t *testing.T) {
	all := queues(t, 2, nil)
	each(t, 2, func(rank int) error {
		sum := func(n int) error {
			return all[rank].Allreduce("x", "", collective.Of(make([]int64, n)), collective.Sum, 0).Wait(soon(t))
		}
		for range 3 {
			if err := errors.Join(sum(3), sum(4)); err != nil {
				return err
			}
			var m *MismatchError
			if err := sum(3 + rank); !errors.As(err, &m) {
				return fmt.Errorf("rank %d: %w, want a MismatchError", rank, err)
			}
		}
		return nil
	})
}

// TestARefusedCallIsToldToTheOthers, and gives way to one that is right.
func TestARefusedCallIsToldToTheOthers(t *testing.T) {
	all := queues(t, 2, nil)
	all[0].Refuse("x", "a wrong argument")
	var m *MismatchError
	if err := all[1].Barrier("x").Wait(soon(t)); !errors.As(err, &m) || m.Kinds[0] != "an error: a wrong argument" {
		t.Fatal(err)
	}
	all[0].Refuse("y", "a wrong argument")
	first := all[0].Barrier("y")
	if err := errors.Join(all[1].Barrier("y").Wait(soon(t)), first.Wait(soon(t))); err != nil {
		t.Fatal(err)
	}
}

// TestARefusedCallGivesWayUntilTheOthersKnow: also in a cycle that has begun with it.
func TestARefusedCallGivesWayUntilTheOthersKnow(t *testing.T) {
	began := make(chan struct{}, 100)
	all := queues(t, 2, func(rank int, o *Options) {
		o.Observe = func(e Event) {
			if rank == 0 && e.Phase == CycleBegan {
				began <- struct{}{}
			}
		}
	})
	all[0].Refuse("x", "a wrong argument")
	<-began // it goes on when rank 1 has something to do
	first := all[0].Barrier("x")
	if err := errors.Join(all[1].Barrier("x").Wait(soon(t)), first.Wait(soon(t))); err != nil {
		t.Fatal(err)
	}
}

func TestANameIsPendingOnce(t *testing.T) {
	all := queues(t, 2, nil)
	first := all[0].Allreduce("x", "", collective.Of([]int64{1}), collective.Sum, 0)
	if err := all[0].Allreduce("x", "", collective.Of([]int64{1}), collective.Sum, 0).Wait(soon(t)); !errors.Is(err, ErrPending) {
		t.Fatal(err)
	}
	second := all[1].Allreduce("x", "", collective.Of([]int64{1}), collective.Sum, 0)
	if err := errors.Join(first.Wait(soon(t)), second.Wait(soon(t))); err != nil {
		t.Fatal(err)
	}
}

func TestWhoHoldsOthersUpIsNamed(t *testing.T) {
	stalls := make(chan Stall, 1000)
	all := queues(t, 3, func(rank int, o *Options) {
		o.StallAfter = 50 * time.Millisecond
		if rank == 0 {
			o.OnStall = func(s Stall) { stalls <- s }
		}
	})
	sum := func(rank int, name string) *Handle {
		return all[rank].Allreduce(name, "", collective.Of([]int64{1}), collective.Sum, 0)
	}
	// Rank 1 submits something else, rank 2 nothing at all.
	handles := []*Handle{sum(0, "late"), sum(1, "other")}
	s := <-stalls
	for s.Name != "" || !slices.Equal(s.Missing, []int{2}) { // the news of rank 1 may be old at first
		s = <-stalls
	}
	handles = append(handles, sum(2, "other"), sum(0, "other"))
	for s = range stalls {
		if s.Name == "late" {
			break
		}
	}
	if !slices.Equal(s.Missing, []int{1, 2}) {
		t.Fatalf("%+v", s)
	}
	for _, h := range append(handles, sum(1, "late"), sum(2, "late")) {
		if err := h.Wait(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheLimitOfAStall: a rank that has waited for the limit ends everything on all ranks.
// Operations that all ranks have are not stalled.
func TestTheLimitOfAStall(t *testing.T) {
	for other, submit := range map[string]func(q *Queue) *Handle{
		"another":   func(q *Queue) *Handle { return q.Barrier("another") },
		"no one":    func(*Queue) *Handle { return nil },
		"the other": func(q *Queue) *Handle { return q.Barrier("x") },
	} {
		t.Run(other, func(t *testing.T) {
			limit := 50 * time.Millisecond
			if other == "the other" {
				limit = time.Hour
			}
			all := queues(t, 2, func(rank int, o *Options) {
				if rank == 0 {
					o.StallLimit = limit
				}
			})
			theirs := submit(all[1])
			err := all[0].Barrier("x").Wait(soon(t))
			if other == "the other" {
				if err := errors.Join(err, theirs.Wait(soon(t))); err != nil {
					t.Fatal(err)
				}
				all[0].abortStalled(&request{name: "x"}) // a timer that fires late
				if err := all[0].comm.Failed(); err != nil {
					t.Fatal(err)
				}
				return
			}
			var stall *StallError
			if !errors.As(err, &stall) || stall.Name != "x" || !errors.Is(err, collective.ErrAborted) {
				t.Fatal(err)
			}
			if theirs != nil {
				if err := theirs.Wait(soon(t)); !errors.Is(err, collective.ErrAborted) {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestTheLimitOfAStallBeforeTheRanksAreConnected: a rank that does not come is not waited for
// longer.
func TestTheLimitOfAStallBeforeTheRanksAreConnected(t *testing.T) {
	q := New(Options{StallLimit: 50 * time.Millisecond, Open: func(ctx context.Context) (*collective.Communicator, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}})
	defer q.Close()
	var stall *StallError
	if err := q.Barrier("x").Wait(soon(t)); !errors.As(err, &stall) || stall.Name != "x" {
		t.Fatal(err)
	}
}

func TestTheEndOfTheCommunicatorEndsWhatIsPending(t *testing.T) {
	all := queues(t, 2, nil)
	h := all[0].Allreduce("x", "", collective.Of([]int64{1}), collective.Sum, 0)
	all[1].comm.Abort(errors.New("no more"))
	if err := h.Wait(soon(t)); !errors.Is(err, collective.ErrAborted) {
		t.Fatal(err)
	}
	if err := all[0].Allreduce("y", "", collective.Of([]int64{1}), collective.Sum, 0).Wait(soon(t)); !errors.Is(err, collective.ErrAborted) {
		t.Fatal(err)
	}
}

// TestCloseLetsCommonOperationsFinish: closing the queue does not fail an operation that all ranks
// have submitted.
func TestCloseLetsCommonOperationsFinish(t *testing.T) {
	for range 20 {
		all := queues(t, 3, func(_ int, o *Options) { o.Cycle = time.Millisecond })
		each(t, 3, func(rank int) error {
			h := all[rank].Allreduce("x", "", collective.Of([]int64{1}), collective.Sum, 0)
			all[rank].Close()
			return h.Wait(soon(t))
		})
	}
}

// TestCloseEndsSynchronousCallers: a thread that runs cycles itself, for ranks that never come,
// returns when the queue is closed.
func TestCloseEndsSynchronousCallers(t *testing.T) {
	began := make(chan struct{}, 1)
	all := queues(t, 2, func(rank int, o *Options) {
		o.Observe = func(e Event) {
			if rank == 0 && e.Phase == CycleBegan {
				began <- struct{}{}
			}
		}
	})
	ended := make(chan error, 1)
	h := all[0].Synchronous().Barrier("nobody else calls this")
	go func() { ended <- h.Wait(soon(t)) }()
	<-began
	all[0].Close()
	if err := <-ended; !errors.Is(err, collective.ErrClosed) {
		t.Fatal(err)
	}
	if err := all[0].Synchronous().Barrier("after the end").Wait(soon(t)); !errors.Is(err, collective.ErrClosed) {
		t.Fatal(err)
	}
}

// TestSynchronousCallersLeaveTheRestToOthers: operations that were submitted while a thread ran
// cycles are executed after it has stopped.
func TestSynchronousCallersLeaveTheRestToOthers(t *testing.T) {
	all := queues(t, 2, nil)
	each(t, 2, func(rank int) error {
		q, err := all[rank], error(nil)
		for i := range 200 {
			var beside *Handle
			submitted := make(chan struct{})
			go func() {
				beside = q.Allreduce(fmt.Sprint("beside ", i), "", collective.Of([]int64{1}), collective.Sum, 0)
				close(submitted)
			}()
			err = errors.Join(err, q.Synchronous().Barrier(fmt.Sprint("waited ", i)).Wait(soon(t)))
			<-submitted
			select {
			case <-beside.done:
			case <-soon(t).Done():
				return errors.New("nobody carries out what was submitted beside")
			}
		}
		return err
	})
}
