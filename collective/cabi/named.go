//go:build cgo

package main

// #include <stdlib.h>
// #include "process.h"
// #include "regroup.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/queue"
)

// named pairs operations by their names. It has connections of its own, which are made when a name
// is first used: the order of the names is independent of that of the other operations.
type named struct {
	once    sync.Once
	queue   atomic.Pointer[queue.Queue] // nil until it is first used
	options namedOptions
	events  queue.Timeline
}

// namedOptions are the settings that a program may choose before its first named operation.
type namedOptions struct {
	CycleTime     float64 `json:"cycle_ms"`
	Fusion        int     `json:"fusion_bytes"`
	StallAfter    float64 `json:"stall_warning_ms"`
	StallLimit    float64 `json:"stall_limit_ms"`
	DeadlockAfter float64 `json:"deadlock_ms"`
}

func (c *communicator) namedQueue() *queue.Queue {
	n := &c.named
	n.once.Do(func() {
		n.queue.Store(queue.New(queue.Options{
			Open:  c.open,
			Cycle: inMilliseconds(n.options.CycleTime), ThresholdBytes: n.options.Fusion,
			StallAfter: inMilliseconds(n.options.StallAfter), DeadlockAfter: inMilliseconds(n.options.DeadlockAfter),
			StallLimit: inMilliseconds(n.options.StallLimit),
			OnStall:    c.warn, Result: allocResult, Observe: n.events.Observe,
		}))
	})
	return n.queue.Load()
}

// Failed returns why the communicator has failed, or nil. The connections of named operations may
// fail first and take the communicator with them a moment later; a caller that has seen their error
// must not be told that the communicator works.
func (c *communicator) Failed() error {
	if err := c.Communicator.Failed(); err != nil {
		return err
	}
	if q := c.named.queue.Load(); q != nil {
		return c.toCaller(q.Failed())
	}
	return nil
}

func inMilliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// allocResult returns memory that the program frees.
func allocResult(n int) ([]byte, error) {
	at := C.malloc(C.size_t(max(n, 1)))
	if at == nil {
		return nil, fmt.Errorf("no memory for a result of %d bytes", n)
	}
	return unsafe.Slice((*byte)(at), n), nil
}

// submit makes a request of a named operation, or runs it if the caller wants no request.
func (c *communicator) submit(started *uint64, begin func(*queue.Queue) *queue.Handle) error {
	if started == nil {
		return c.toCaller(c.run(begin))
	}
	r, err := c.newRequest()
	if err != nil {
		return err
	}
	r.handle = begin(c.namedQueue())
	*started = r.id
	r.handle.Then(func(err error) {
		if result, _ := r.handle.Result(); err != nil && result != nil {
			C.free(unsafe.Pointer(unsafe.SliceData(result))) // nobody will fetch it
		}
		r.end(c.toCaller(err))
	})
	select {
	case <-r.done:
		if errors.Is(r.err, queue.ErrPending) { // the program learns of it in this call
			take[*request](r.id)
			return r.err
		}
	default:
	}
	return nil
}

// run returns when an operation has ended.
func (c *communicator) run(begin func(*queue.Queue) *queue.Handle) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.started.Done()
	h := begin(c.namedQueue().Synchronous())
	defer h.Waiting(C.rgx_on_main_thread() != 0)()
	return h.Wait(background)
}

// warn prints a warning, as Horovod does.
func (c *communicator) warn(s queue.Stall) {
	what := fmt.Sprintf("%q", s.Name)
	if s.Name == "" {
		what = "an operation"
	}
	missing := make([]int, len(s.Missing))
	for i, rank := range s.Missing {
		missing[i] = c.callerRank(rank)
	}
	who := "other ranks"
	if len(missing) > 0 {
		who = fmt.Sprintf("ranks %v", missing)
	}
	fmt.Fprintf(os.Stderr, "regroup: %s has been waiting for %v for %s, which have not started it\n",
		what, s.Pending.Round(time.Second), who)
}

// close closes the queue. Nothing is running any more, and nothing more is submitted.
func (n *named) close() {
	n.once.Do(func() {})
	if q := n.queue.Load(); q != nil {
		q.Close()
	}
	_ = n.events.Stop() // the timeline's reader has asked for the end
}

//export rgo_named_options
func rgo_named_options(h C.uint64_t, options *C.char) C.int {
	return with(h, func(c *communicator) error {
		return decode(text(options), &c.named.options)
	})
}

// startNamed starts an operation by name, or runs it if the caller wants no request.
func (c *communicator) startNamed(op *C.rg_op, started *uint64) error {
	begin, err := c.byName(op)
	if err != nil {
		return err
	}
	if started == nil && (op.code == C.RG_ALLGATHER || op.code == C.RG_ALLTOALL || op.code == C.RG_JOIN) {
		return invalidf("an operation with a result of its own length needs a place for its request")
	}
	return c.submit(started, begin)
}

// byName checks the arguments of an operation by name, and returns what submits it.
func (c *communicator) byName(op *C.rg_op) (begin func(*queue.Queue) *queue.Handle, err error) {
	name, detail, root, row := text(op.name), text(op.detail), int(op.peer), int(op.row)
	switch op.code {
	case C.RG_ALLREDUCE:
		t, o, err := reductionOf(op)
		if err != nil {
			return nil, err
		}
		wire, err := wireOf(int32(op.wire))
		return func(q *queue.Queue) *queue.Handle { return q.Allreduce(name, detail, t, o, wire) }, err
	case C.RG_REDUCE_SCATTER:
		t, err := rowsOf(op, op.recv, int64(op.count))
		if err != nil {
			return nil, err
		}
		o, err := opOf(int32(op.reduction))
		return func(q *queue.Queue) *queue.Handle { return q.ReduceScatter(name, detail, t, row, o) }, err
	case C.RG_BROADCAST:
		t, err := inPlace(op)
		return func(q *queue.Queue) *queue.Handle { return q.Broadcast(name, detail, t, root) }, err
	case C.RG_ALLGATHER:
		t, err := rowsOf(op, op.send, int64(op.count))
		rows := int(op.count)
		return func(q *queue.Queue) *queue.Handle { return q.Allgather(name, detail, t, rows, row) }, err
	case C.RG_ALLTOALL:
		return c.alltoallByName(op, name, detail)
	case C.RG_BARRIER:
		return func(q *queue.Queue) *queue.Handle { return q.Barrier(name) }, nil
	case C.RG_JOIN:
		return (*queue.Queue).Join, nil
	}
	return nil, unknownOperation(op)
}

func (c *communicator) alltoallByName(op *C.rg_op, name, detail string) (begin func(*queue.Queue) *queue.Handle, err error) {
	if op.send_counts == nil {
		return nil, invalidf("an alltoall by name needs its send_counts")
	}
	splits, rows, err := blocks(op.send_counts, 0, c.size())
	if err != nil {
		return nil, err
	}
	t, err := rowsOf(op, op.send, rows)
	row := int(op.row)
	return func(q *queue.Queue) *queue.Handle { return q.Alltoall(name, detail, t, splits, row) }, err
}

//export rgo_named_refuse
func rgo_named_refuse(h C.uint64_t, name, why *C.char) C.int {
	return with(h, func(c *communicator) error {
		c.namedQueue().Refuse(text(name), text(why))
		return nil
	})
}

//export rgo_named_deadlocks
func rgo_named_deadlocks(h C.uint64_t, out *C.int64_t) C.int {
	return with(h, func(c *communicator) error {
		if out == nil {
			return invalidf("nowhere to put the number")
		}
		*out = C.int64_t(c.namedQueue().Deadlocks())
		return nil
	})
}

//export rgo_wait_result
func rgo_wait_result(id C.uint64_t, within C.int64_t, program C.int, data *unsafe.Pointer, rows *C.int64_t) C.int {
	return with(id, func(r *request) error {
		if r.handle == nil || data == nil || rows == nil {
			return invalidf("request %d has no result, or there is nowhere to put it", uint64(id))
		}
		if err := r.waitOn(milliseconds(int64(within)), program != 0); err != nil {
			return err
		}
		result, counts := r.handle.Result()
		to := unsafe.Slice(rows, r.of.size())
		for i := range to {
			to[i] = 0
			if i < len(counts) {
				to[i] = C.int64_t(counts[i])
			}
		}
		if counts == nil { // a join
			to[0] = C.int64_t(r.of.callerRank(r.handle.Last()))
		}
		*data = unsafe.Pointer(unsafe.SliceData(result))
		return nil
	})
}

//export rgo_subset
func rgo_subset(h C.uint64_t, name *C.char, ranks *C.int32_t, length C.int32_t, out *C.uint64_t) C.int {
	return withWorld(h, func(c *communicator) error {
		if ranks == nil || length < 1 {
			return invalidf("a subset needs ranks")
		}
		all := make([]int, length)
		for i, r := range unsafe.Slice(ranks, int(length)) {
			all[i] = int(r)
		}
		return returnHandle(out, func() (*communicator, error) { return c.newSubgroup(text(name), all) })
	})
}

//export rgo_timeline_start
func rgo_timeline_start(h C.uint64_t, path *C.char, markCycles C.int32_t) C.int {
	return with(h, func(c *communicator) error {
		return c.named.events.Start(text(path), markCycles != 0)
	})
}

//export rgo_timeline_stop
func rgo_timeline_stop(h C.uint64_t) C.int {
	return with(h, func(c *communicator) error { return c.named.events.Stop() })
}
