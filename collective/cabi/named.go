//go:build cgo

package main

// #include <stdlib.h>
// #include "process.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/queue"
)

// named pairs up operations by their names. It has connections of its own, which are made when a name comes first: the
// order of the names has nothing to do with that of the other operations.
type named struct {
	once    sync.Once
	queue   *queue.Queue
	made    atomic.Pointer[queue.Queue] // queue, for who must not make it
	options namedOptions
	events  timeline
}

// namedOptions are what a program may choose before its first operation by name.
type namedOptions struct {
	CycleTime     float64 `json:"cycle_ms"`
	Fusion        int     `json:"fusion_bytes"`
	StallAfter    float64 `json:"stall_warning_ms"`
	StallLimit    float64 `json:"stall_limit_ms"`
	DeadlockAfter float64 `json:"deadlock_ms"`
}

// names is the queue of this communicator.
func (c *communicator) names() *queue.Queue {
	n := &c.named
	n.once.Do(func() {
		n.queue = queue.New(queue.Options{
			Open:  c.open,
			Cycle: inMilliseconds(n.options.CycleTime), ThresholdBytes: n.options.Fusion,
			StallAfter: inMilliseconds(n.options.StallAfter), DeadlockAfter: inMilliseconds(n.options.DeadlockAfter),
			StallLimit: inMilliseconds(n.options.StallLimit),
			OnStall:    c.warn, Result: allocated, Observe: n.events.observe,
		})
		n.made.Store(n.queue)
	})
	return n.queue
}

// Failed returns why the communicator has failed, or nil. The connections of named operations may fail first and take the
// communicator with them a moment later; who has seen their error must not be told that it works.
func (c *communicator) Failed() error {
	if err := c.Communicator.Failed(); err != nil {
		return err
	}
	if q := c.named.made.Load(); q != nil {
		return c.outside(q.Failed())
	}
	return nil
}

func inMilliseconds(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }

// allocated is memory that the program gives back.
func allocated(n int) ([]byte, error) {
	at := C.malloc(C.size_t(max(n, 1)))
	if at == nil {
		return nil, fmt.Errorf("no memory for a result of %d bytes", n)
	}
	return unsafe.Slice((*byte)(at), n), nil
}

// submit makes a request of an operation that is paired up by its name, or carries it out if nobody wants the request.
func (c *communicator) submit(started *uint64, begin func(*queue.Queue) *queue.Handle) error {
	if started == nil {
		return c.outside(c.carryOut(begin))
	}
	r, err := c.start(nil)
	if err != nil {
		return err
	}
	r.handle = begin(c.names())
	*started = r.id
	r.handle.Then(func(err error) {
		if result, _ := r.handle.Result(); err != nil && result != nil {
			C.free(unsafe.Pointer(unsafe.SliceData(result))) // nobody will fetch it
		}
		r.end(c.outside(err))
	})
	select {
	case <-r.done:
		if errors.Is(r.err, queue.ErrPending) { // the program hears of it in this call
			requests.take(r.id)
			return r.err
		}
	default:
	}
	return nil
}

// carryOut returns when an operation has ended.
func (c *communicator) carryOut(begin func(*queue.Queue) *queue.Handle) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return collective.ErrClosed
	}
	c.started.Add(1)
	c.mu.Unlock()
	defer c.started.Done()
	h := begin(c.names().Waited())
	defer h.Waiting(C.rgx_on_main_thread() != 0)()
	return h.Wait(background)
}

// resultFor is where the request of an operation goes whose result must be fetched.
func resultFor(started *uint64) error {
	if started == nil {
		return invalidf("an operation with a result of its own length needs a place for its request")
	}
	return nil
}

// allreduceNamed starts an allreduce that is carried out when all ranks have started one of this name.
func (c *communicator) allreduceNamed(name, detail string, wire kernel.Type, t collective.Tensor, op collective.Op, started *uint64) error {
	return c.submit(started, func(q *queue.Queue) *queue.Handle { return q.Allreduce(name, detail, t, op, wire) })
}

// warn tells people, as Horovod does.
func (c *communicator) warn(s queue.Stall) {
	what := fmt.Sprintf("%q", s.Name)
	if s.Name == "" {
		what = "an operation"
	}
	missing := make([]int, len(s.Missing))
	for i, rank := range s.Missing {
		missing[i] = c.rankOutside(rank)
	}
	who := "other ranks"
	if len(missing) > 0 {
		who = fmt.Sprintf("ranks %v", missing)
	}
	fmt.Fprintf(os.Stderr, "regroup: %s has been waiting for %v for %s, which have not started it\n",
		what, s.Pending.Round(time.Second), who)
}

// close ends it. Nothing goes on any more, and nothing more comes.
func (n *named) close() {
	n.once.Do(func() {})
	if n.queue != nil {
		n.queue.Close()
	}
	_ = n.events.stop() // who is to know has asked for the end
}
