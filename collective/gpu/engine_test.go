package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

// job is a set of ranks in this process, each with its own endpoint and device.
type job struct {
	endpoints []*collective.Endpoint
	devices   []*nccl.Device
}

func newJob(t *testing.T, l *nccl.Library, n int) *job {
	t.Helper()
	j := &job{}
	network := inproc.NewNetwork()
	for i := range n {
		j.devices = append(j.devices, device(t, l, i))
		listener, err := network.Listen(fmt.Sprint(t.Name(), i))
		ok(t, err)
		e := collective.NewEndpoint(listener)
		t.Cleanup(func() { _ = e.Close() })
		j.endpoints = append(j.endpoints, e)
	}
	return j
}

// spot is the position of a rank.
type spot struct{ member, rank, world, local, here int }

// layouts returns the positions of nodes with these members.
func layouts(nodes [][]int) (all []spot) {
	world := 0
	for _, members := range nodes {
		world += len(members)
	}
	for _, members := range nodes {
		for i, m := range members {
			all = append(all, spot{m, len(all), world, i, len(members)})
		}
	}
	return all
}

// communicators creates those of a generation; they are closed when the test ends.
func (j *job) communicators(t *testing.T, generation uint64, nodeSlots []spot) []*collective.Communicator {
	t.Helper()
	comms := make([]*collective.Communicator, len(nodeSlots))
	t.Cleanup(func() {
		each(len(comms), func(i int) error {
			if comms[i] == nil {
				return nil
			}
			return comms[i].Close()
		})
	})
	all(t, len(nodeSlots), func(i int) (err error) {
		p := nodeSlots[i]
		comms[i], err = collective.New(soon(t), collective.Options{
			Job: "job", Generation: generation, Rank: p.rank, World: p.world, Endpoint: j.endpoints[p.member],
			Peers: func(_ context.Context, rank int) (string, error) {
				return j.endpoints[nodeSlots[rank].member].Addr(), nil
			},
		})
		return err
	})
	return comms
}

// engines creates those of a generation, from the previous ones by member where there are any.
func (j *job) engines(t *testing.T, generation uint64, nodeSlots []spot, before map[int]*Engine, change func(*Options)) (map[int]*Engine, []error) {
	t.Helper()
	comms := j.communicators(t, generation, nodeSlots)
	made := make([]*Engine, len(nodeSlots))
	errs := each(len(nodeSlots), func(i int) (err error) {
		p := nodeSlots[i]
		if e := before[p.member]; e != nil {
			made[i], err = e.Next(soon(t), comms[i], p.local, p.here)
			return err
		}
		o := Options{Device: j.devices[p.member], LocalRank: p.local, LocalSize: p.here, ChunkBytes: 4096}
		if change != nil {
			change(&o)
		}
		made[i], err = New(soon(t), comms[i], o)
		return err
	})
	engines := map[int]*Engine{}
	for i, e := range made {
		if e != nil {
			engines[nodeSlots[i].member] = e
		}
	}
	t.Cleanup(func() { j.close(t, engines) })
	return engines, errs
}

// close closes engines that are not over yet.
func (j *job) close(t *testing.T, engines map[int]*Engine) {
	var list []*Engine
	for _, e := range engines {
		list = append(list, e)
	}
	for _, err := range each(len(list), func(i int) error { return list[i].Close(soon(t)) }) {
		if err != nil {
			t.Error(err)
		}
	}
}

// runs runs the suite on all ranks.
func runs(t *testing.T, engines map[int]*Engine, brief bool) {
	t.Helper()
	var list []*Engine
	for _, e := range engines {
		list = append(list, e)
	}
	all(t, len(list), func(i int) error {
		s, err := newSuite(soon(t), list[i])
		if err != nil {
			return err
		}
		return errors.Join(s.run(brief), s.close())
	})
}

// made returns the engines of a first generation.
func made(t *testing.T, version int, nodes [][]int, change func(*Options)) (*job, map[int]*Engine) {
	t.Helper()
	j := newJob(t, library(t, version), len(layouts(nodes)))
	engines, errs := j.engines(t, 1, layouts(nodes), nil, change)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return j, engines
}

// sum reduces ones on all engines, and returns the errors.
func sum(t *testing.T, engines map[int]*Engine) map[int]error {
	t.Helper()
	buffers := map[int]nccl.Buffer{}
	for m, e := range engines {
		buffers[m] = upload(t, e.Device(), floats(5000, 0, 1))
	}
	errs := map[int]error{}
	var mu sync.Mutex
	var g sync.WaitGroup
	for m, e := range engines {
		g.Go(func() {
			err := e.Allreduce(soon(t), nil, buffers[m], kernel.Float32, collective.Sum).Wait(soon(t))
			mu.Lock()
			defer mu.Unlock()
			errs[m] = err
		})
	}
	g.Wait()
	for m, err := range errs {
		if err == nil && !slices.Equal(download(t, engines[m].Device(), buffers[m]), floats(5000, 0, float64(len(engines)))) {
			t.Errorf("member %d got a wrong sum", m)
		}
	}
	return errs
}

func mustSum(t *testing.T, engines map[int]*Engine) {
	t.Helper()
	for m, err := range sum(t, engines) {
		if err != nil {
			t.Fatalf("member %d: %v", m, err)
		}
	}
}

// onward creates the next generation, and checks how the first of its nodes was formed.
func (j *job) onward(t *testing.T, generation uint64, nodes [][]int, before map[int]*Engine, how string) map[int]*Engine {
	t.Helper()
	engines, errs := j.engines(t, generation, layouts(nodes), before, nil)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if s := engines[nodes[0][0]].Describe(); !strings.Contains(s, how) {
		t.Errorf("generation %d: %q, not %q", generation, s, how)
	}
	mustSum(t, engines)
	return engines
}

func TestAnEngineSaysWhatItUses(t *testing.T) {
	for want, nodes := range map[string][][]int{
		"GPU 0: Fake GPU 0; alone on its node":                                               {{0}},
		"GPU 0: Fake GPU 0; alone on its node, 2 nodes over connections":                     {{0}, {1}},
		"GPU 0: Fake GPU 0; 2 GPUs here through NCCL 2.28.9 (new)":                           {{0, 1}},
		"GPU 0: Fake GPU 0; 2 GPUs here through NCCL 2.28.9 (new), 3 nodes over connections": {{0, 1}, {2}, {3}},
	} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			_, engines := made(t, 22809, nodes, nil)
			if s := engines[0].Describe(); s != want {
				t.Errorf("%q, not %q", s, want)
			}
			mustSum(t, engines)
		})
	}
}

func TestOperationsAcrossThreeNodes(t *testing.T) {
	// A smallest node of one GPU, and of two: then parts and blocks differ.
	for _, nodes := range [][][]int{{{0}, {1, 2}, {3}}, {{0, 1, 2}, {3, 4}}} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			_, engines := made(t, 23007, nodes, nil)
			runs(t, engines, true)
		})
	}
}

func TestNCCLCanBeUsedWhereAGPUIsAlone(t *testing.T) {
	_, engines := made(t, 23007, [][]int{{0}, {1}}, func(o *Options) { o.Always = true })
	if s := engines[0].Describe(); !strings.Contains(s, "1 GPUs here through NCCL") {
		t.Error(s)
	}
	fake.Calls()
	mustSum(t, engines)
	calls := fake.Calls()
	for _, call := range []string{"ReduceScatter", "AllGather"} {
		if !slices.Contains(calls, call) {
			t.Errorf("%s was not called, but %v", call, calls)
		}
	}
	runs(t, engines, true)
}

func TestAfterAPlannedChangeNCCLGoesOn(t *testing.T) {
	all := [][]int{{0, 1, 2}, {3}}
	for version, without := range map[int]string{21403: "(new)", 22703: "(shrunk)", 23007: "(shrunk)"} {
		t.Run(nccl.Version(version).String(), func(t *testing.T) {
			j, engines := made(t, version, all, nil)
			mustSum(t, engines)
			engines = j.onward(t, 2, all, engines, "(kept)")
			left := engines[3]
			engines = j.onward(t, 3, [][]int{{0, 1, 2}}, engines, "(kept)") // the other node leaves
			ok(t, left.Close(soon(t)))
			gone := engines[1]
			engines = j.onward(t, 4, [][]int{{0, 2}}, engines, without)
			_ = gone.comm.Close()
			ok(t, gone.Close(soon(t)))
			engines = j.onward(t, 5, all, map[int]*Engine{0: engines[0], 2: engines[2]}, "(new)") // and all return
			j.onward(t, 6, [][]int{{0}, {1, 2}, {3}}, engines, "alone on its node")
		})
	}
}

func TestAnEngineThatWasLeftSaysSo(t *testing.T) {
	j, engines := made(t, 23007, [][]int{{0, 1}}, nil)
	next := j.onward(t, 2, [][]int{{0, 1}}, engines, "(kept)")
	old := engines[0]
	if err := old.Synchronize(soon(t)); !errors.Is(err, nccl.ErrClosed) {
		t.Errorf("an operation: %v", err)
	}
	if _, err := old.Next(soon(t), next[0].comm, 0, 2); !errors.Is(err, nccl.ErrClosed) {
		t.Errorf("another Next: %v", err)
	}
	ok(t, old.Close(soon(t)))
	mustSum(t, next)
}

func TestWhereARankCannotShrinkAllBeginAnew(t *testing.T) {
	j, engines := made(t, 23007, [][]int{{0, 1, 2}, {3}}, func(o *Options) { o.StuckAfter = 500 * time.Millisecond })
	release := fake.Turn(t, "fail_shrink", 1)
	gone := engines[1]
	next := j.onward(t, 2, [][]int{{0, 2}, {3}}, engines, "(new)")
	release()
	_ = gone.comm.Close()
	ok(t, gone.Close(soon(t)))
	mustSum(t, next)
}

func TestARankWithoutAGPUIsNamedToAllAndTheCommunicatorGoesOn(t *testing.T) {
	l := library(t, 23007)
	j := newJob(t, l, 3)
	_, absent := nccl.Open(nccl.Options{NCCL: "/nowhere/libnccl.so.2", CUDA: "/nowhere/libcuda.so.1"})
	if absent == nil {
		absent = &nccl.UnavailableError{Library: "libnccl.so.2"} // the process has one already
	}
	nodeSlots := layouts([][]int{{0, 1, 2}})
	engines, errs := j.engines(t, 1, nodeSlots, nil, func(o *Options) {
		if o.LocalRank == 1 {
			o.Device, o.Absent = nil, absent
		}
	})
	for rank, err := range errs {
		if !errors.Is(err, nccl.ErrUnavailable) || !strings.Contains(err.Error(), "rank 1 has no GPU: not available: "+absent.Error()) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if len(engines) > 0 {
		t.Error("an engine was made")
	}

	// The same for existing engines: they may try again without it.
	engines, errs = j.engines(t, 2, layouts([][]int{{0, 2}}), nil, nil)
	ok(t, errors.Join(errs...))
	comms := j.communicators(t, 3, nodeSlots)
	for rank, err := range each(3, func(i int) (err error) {
		if e := engines[i]; e != nil {
			_, err = e.Next(soon(t), comms[i], i, 3)
		} else {
			_, err = New(soon(t), comms[i], Options{Absent: absent, LocalRank: i, LocalSize: 3})
		}
		if !errors.Is(err, nccl.ErrUnavailable) {
			return fmt.Errorf("not told: %w", err)
		}
		return comms[i].Barrier(soon(t)) // the CPU can be used instead
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	j.onward(t, 4, [][]int{{0, 2}}, engines, "(kept)")
}

func TestOptionsOfAnEngineAreChecked(t *testing.T) {
	j := newJob(t, library(t, 23007), 2)
	comms := j.communicators(t, 1, layouts([][]int{{0, 1}}))
	d := j.devices[0]
	for name, o := range map[string]Options{
		"no device":  {},
		"both":       {Device: d, Absent: nccl.ErrUnavailable},
		"local rank": {Device: d, LocalRank: 2, LocalSize: 2},
		"chunk":      {Device: d, ChunkBytes: 100},
		"timeout":    {Device: d, Timeout: -1},
	} {
		if _, err := New(soon(t), comms[0], o); !errors.Is(err, nccl.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// They disagree: all get an error, and the communicator continues to work.
	for _, err := range each(2, func(i int) error {
		_, err := New(soon(t), comms[i], Options{Device: j.devices[i], LocalRank: i, LocalSize: 2, ChunkBytes: 64 * (64 + i)})
		return err
	}) {
		if !errors.Is(err, nccl.ErrInvalid) || !strings.Contains(err.Error(), "differ in ChunkBytes") {
			t.Error(err)
		}
	}
	for _, err := range each(2, func(i int) error { return comms[i].Barrier(soon(t)) }) {
		ok(t, err)
	}
}

func TestWrongOperationsOfAnEngineAreRefusedAndHarmNothing(t *testing.T) {
	_, engines := made(t, 23007, [][]int{{0}, {1}}, nil)
	e := engines[0]
	ctx := soon(t)
	here, there := upload(t, e.Device(), make([]byte, 64)), upload(t, engines[1].Device(), make([]byte, 64))
	for name, task := range map[string]*Task{
		"half an element":   e.Allreduce(ctx, nil, here.Slice(0, 6), kernel.Float32, collective.Sum),
		"type":              e.Allreduce(ctx, nil, here, 0, collective.Sum),
		"reduction":         e.Allreduce(ctx, nil, here, kernel.Float32, collective.Max+1),
		"device":            e.Allreduce(ctx, nil, there, kernel.Float32, collective.Sum),
		"wire":              e.AllreduceAs(ctx, nil, kernel.Float32, here, collective.Sum),
		"root":              e.Reduce(ctx, nil, here, kernel.Float32, collective.Sum, 2),
		"broadcast's root":  e.Broadcast(ctx, nil, here, -1),
		"gather too small":  e.Allgather(ctx, nil, here, here),
		"scatter too large": e.ReduceScatter(ctx, nil, here, here, kernel.Float32, collective.Sum),
		"peer":              e.Send(ctx, nil, here, 2),
		"to itself":         e.Send(ctx, nil, here, 0),
		"uneven":            e.Alltoall(ctx, nil, here.Slice(0, 7), here, nil, nil),
		"counts":            e.Alltoall(ctx, nil, here, here, []int{64}, nil),
		"too much":          e.Alltoall(ctx, nil, here, here, []int{64, 1}, nil),
		"too little":        e.Alltoall(ctx, nil, here, here, nil, []int{1, 2}),
		"negative":          e.Alltoall(ctx, nil, here, here, []int{-1, 65}, nil),
		"stream":            e.Broadcast(ctx, engines[1].Device().StreamOf(0), here, 0),
	} {
		if err := task.Wait(ctx); !errors.Is(err, nccl.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustSum(t, engines)
}
