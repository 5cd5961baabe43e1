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
