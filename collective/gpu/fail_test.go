package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

// waiting starts a reduction on all engines but some, and returns the error of each. If NCCL waits
// for one of those, its operation has begun.
func waiting(t *testing.T, engines map[int]*Engine, without ...int) map[int]<-chan error {
	t.Helper()
	ends := map[int]<-chan error{}
	for m, e := range engines {
		if slices.Contains(without, m) {
			continue
		}
		b := upload(t, e.Device(), floats(5000, 0, 1))
		// The end of its context does not end an operation.
		ctx, cancel := context.WithCancel(context.Background())
		task := e.Allreduce(ctx, nil, b, kernel.Float32, collective.Sum)
		cancel()
		if err := task.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("member %d: %v", m, err)
		}
		end := make(chan error, 1)
		go func() { end <- task.Wait(soon(t)) }()
		ends[m] = end
		if slices.ContainsFunc(without, func(w int) bool { return engines[w].at.node == e.at.node }) {
			waitFor(t, e.local.Running)
		}
	}
	return ends
}

func TestTheEndOfTheCommunicatorEndsNCCL(t *testing.T) {
	for _, version := range []int{21403, 23007} {
		t.Run(nccl.Version(version).String(), func(t *testing.T) {
			j, engines := made(t, version, [][]int{{0, 1}, {2, 3}}, nil)
			ends := waiting(t, engines, 1)
			began := time.Now()
			engines[1].comm.Abort(errCaller)
			for m, end := range ends {
				err := <-end
				var aborted *collective.AbortedError
				if !errors.As(err, &aborted) || aborted.Rank != 1 {
					t.Errorf("member %d: %v", m, err)
				}
			}
			took := time.Since(began)
			for _, e := range engines {
				<-e.watched
				waitFor(t, e.local.Idle) // an aborted kernel ends soon, not at once
			}
			t.Logf("all knew after %v, and all had stopped after %v", took, time.Since(began))
			j.onward(t, 2, [][]int{{0, 1}, {2, 3}}, engines, "2 GPUs here through NCCL")
		})
	}
}

func TestAnErrorOfNCCLEndsTheCommunicatorOnAllRanks(t *testing.T) {
	j, engines := made(t, 23007, [][]int{{0, 1}, {2}}, nil)
	ends := waiting(t, engines, 1)
	release := fake.Turn(t, "notice_death", 2) // NCCL considers a live rank dead
	for m, end := range ends {
		err := <-end
		var aborted *collective.AbortedError
		if !errors.As(err, &aborted) || aborted.Rank != 0 || !strings.Contains(err.Error(), "remote process exited") {
			t.Errorf("member %d: %v", m, err)
		}
		if m == 0 && !errors.Is(err, nccl.ErrRemote) {
			t.Errorf("on the rank itself: %v", err)
		}
	}
	release()
	b := upload(t, engines[1].Device(), make([]byte, 4))
	if err := engines[1].Allreduce(soon(t), nil, b, kernel.Float32, collective.Sum).Wait(soon(t)); !errors.Is(err, collective.ErrAborted) {
		t.Errorf("who was not there: %v", err)
	}
	j.onward(t, 2, [][]int{{0, 1}, {2}}, engines, "(new)") // NCCL keeps its error
}

func TestAnErrorOfTheDriverEndsTheGeneration(t *testing.T) {
	j, engines := made(t, 23007, [][]int{{0}, {1}}, nil)
	mustSum(t, engines)
	buffers := []nccl.Buffer{upload(t, engines[0].Device(), floats(64, 0, 1)), upload(t, engines[1].Device(), floats(64, 0, 1))}
	release := fake.Turn(t, "fail_copy_device", 1+1)
	for m, err := range each(2, func(m int) error {
		return engines[m].Allreduce(soon(t), nil, buffers[m], kernel.Float32, collective.Sum).Wait(soon(t))
	}) {
		var aborted *collective.AbortedError
		if !errors.As(err, &aborted) || aborted.Rank != 1 || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
			t.Errorf("member %d: %v", m, err)
		}
	}
	release()
	j.onward(t, 2, [][]int{{0}, {1}}, engines, "alone on its node")
}

func TestPatienceEndsAGenerationThatNobodyElseEnds(t *testing.T) {
	_, engines := made(t, 23007, [][]int{{0, 1}}, func(o *Options) { o.Timeout = time.Second })
	for _, end := range waiting(t, engines, 1) {
		if err := <-end; !errors.Is(err, collective.ErrAborted) || !errors.Is(err, nccl.ErrTimeout) {
			t.Error(err)
		}
	}
	<-engines[0].watched // to free memory waits for what is under way, and so does the device's thread
}

func TestAnNCCLThatCannotBeEndedSaysThatTheProcessMustRestart(t *testing.T) {
	_, engines := made(t, 21403, [][]int{{0, 1}}, func(o *Options) { o.StuckAfter = 100 * time.Millisecond })
	ends := waiting(t, engines, 1)
	release := fake.Turn(t, "hang_abort", 1)
	engines[1].comm.Abort(errCaller)
	if err := <-ends[0]; !errors.Is(err, collective.ErrAborted) { // and does not wait for NCCL
		t.Error(err)
	}
	e := engines[0]
	<-e.watched
	if err := e.Err(); !errors.Is(err, nccl.ErrStuck) || !errors.Is(err, collective.ErrAborted) {
		t.Errorf("afterwards: %v", err)
	}
	if err := e.Close(soon(t)); !errors.Is(err, nccl.ErrStuck) {
		t.Errorf("its end: %v", err)
	}
	release()
	waitFor(t, func() bool { return fake.Living("communicators") == 1 })
	ok(t, e.res.close(soon(t))) // for the test's own book-keeping
}

func TestAStuckProcessEndsTheGenerationThatItIsToTakePartIn(t *testing.T) {
	j, engines := made(t, 21403, [][]int{{0, 1}}, func(o *Options) { o.StuckAfter = 100 * time.Millisecond })
	waiting(t, engines, 1)
	release := fake.Turn(t, "hang_abort", 1)
	engines[1].comm.Abort(errCaller)
	<-engines[0].watched
	comms := j.communicators(t, 2, layouts([][]int{{0, 1}}))
	errs := each(2, func(i int) error {
		_, err := engines[i].Next(soon(t), comms[i], i, 2)
		return err
	})
	var aborted *collective.AbortedError
	if !errors.Is(errs[0], nccl.ErrStuck) || !errors.As(errs[1], &aborted) || aborted.Rank != 0 || !strings.Contains(errs[1].Error(), "must restart") {
		t.Error(errs)
	}
	release()
	waitFor(t, func() bool { return fake.Living("communicators") < 2 })
	if err := engines[0].Close(soon(t)); !errors.Is(err, nccl.ErrStuck) {
		t.Error(err)
	}
	ok(t, engines[0].res.close(soon(t)))
	delete(engines, 0)
}

func TestAGenerationThatFailsToFormCanBeFollowedByAnother(t *testing.T) {
	for _, version := range []int{21403, 23007} {
		t.Run(nccl.Version(version).String(), func(t *testing.T) {
			j, engines := made(t, version, [][]int{{0, 1}, {2}}, nil)
			comms := j.communicators(t, 2, layouts([][]int{{0, 1}, {2}}))
			// Rank 1 never joins, and the others time out.
			errs := each(3, func(i int) error {
				if i == 1 {
					comms[1].Abort(&collective.PeerLostError{Rank: 1, Cause: errCaller})
					return nil
				}
				_, err := engines[i].Next(soon(t), comms[i], i%2, 2-i/2)
				return err
			})
			for _, i := range []int{0, 2} {
				var lost *collective.PeerLostError
				if !errors.As(errs[i], &lost) || lost.Rank != 1 {
					t.Errorf("rank %d: %v", i, errs[i])
				}
			}
			j.onward(t, 3, [][]int{{0, 1}, {2}}, engines, "(kept)")
		})
	}
}

func TestARankThatIsLostWhileNCCLConnectsIsNamed(t *testing.T) {
	l := library(t, 23007)
	j := newJob(t, l, 3)
	nodeSlots := layouts([][]int{{0, 1, 2}})
	comms := j.communicators(t, 1, nodeSlots)
	release := fake.Turn(t, "hang_init", 1)
	time.AfterFunc(30*time.Millisecond, func() { comms[2].Abort(&collective.PeerLostError{Rank: 1, Cause: errCaller}) })
	for rank, err := range each(3, func(i int) error {
		_, err := New(soon(t), comms[i], Options{Device: j.devices[i], LocalRank: i, LocalSize: 3})
		return err
	}) {
		var lost *collective.PeerLostError
		if !errors.As(err, &lost) || lost.Rank != 1 {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	release()
}

func TestAnOperationIsOrderedWithTheCallersStreamBothWays(t *testing.T) {
	for _, nodes := range [][][]int{{{0, 1}}, {{0}, {1}}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			_, engines := made(t, 23007, nodes, nil)
			ctx := soon(t)
			var sources, targets, after [2]nccl.Buffer
			var torch [2]*nccl.Stream
			for i := range 2 {
				d := engines[i].Device()
				s, err := d.NewStream(ctx)
				ok(t, err)
				t.Cleanup(func() { ok(t, s.Close(soon(t))) })
				torch[i] = s
				sources[i], targets[i], after[i] = upload(t, d, floats(64, 1, 1)), upload(t, d, floats(64, 0, 0)), upload(t, d, floats(64, 0, 0))
			}
			release := fake.Turn(t, "hold_copies", 1)
			var tasks [2]*Task
			for i := range 2 {
				ok(t, torch[i].Copy(ctx, targets[i], sources[i])) // the producer, which hangs for now
				tasks[i] = engines[i].Allreduce(ctx, torch[i], targets[i], kernel.Float32, collective.Sum)
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				if err := tasks[i].Wait(short); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it did not wait for the producer: %v", err)
				}
				cancel()
			}
			release()
			all(t, 2, func(i int) error {
				if err := tasks[i].Before(ctx, torch[i]); err != nil {
					return err
				}
				return errors.Join(torch[i].Copy(ctx, after[i], targets[i]), torch[i].Wait(ctx)) // the consumer
			})
			for i := range 2 {
				ok(t, tasks[i].Wait(ctx))
				if !slices.Equal(download(t, engines[i].Device(), after[i]), floats(64, 2, 2)) {
					t.Errorf("member %d: the order was not kept", i)
				}
			}
		})
	}
}

func TestManyOperationsMayBeUnderWay(t *testing.T) {
	for _, nodes := range [][][]int{{{0, 1}}, {{0, 1}, {2}}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			_, engines := made(t, 23007, nodes, nil)
			buffers := make([]nccl.Buffer, len(engines))
			for m, e := range engines {
				buffers[m] = upload(t, e.Device(), floats(100, 0, 1))
			}
			all(t, len(engines), func(m int) error {
				for range 3 * maxFlight {
					engines[m].Allreduce(soon(t), nil, buffers[m], kernel.Float32, collective.Average)
				}
				return engines[m].Synchronize(soon(t))
			})
			for m, b := range buffers {
				if !slices.Equal(download(t, engines[m].Device(), b), floats(100, 0, 1)) {
					t.Error("wrong")
				}
			}
		})
	}
}
