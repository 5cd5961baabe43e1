//go:build cgo

package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/queue"
)

// named pairs up operations by their names. It has connections of its own, which are made when a name comes first: the
// order of the names has nothing to do with that of the other operations.
type named struct {
	once  sync.Once
	comm  *collective.Communicator
	queue *queue.Queue
	err   error
}

// allreduceNamed starts an allreduce that is carried out when all ranks have started one of this name.
func (c *communicator) allreduceNamed(name string, wire kernel.Type, t collective.Tensor, op collective.Op, started *uint64) error {
	r, err := c.start(nil)
	if err != nil {
		return err
	}
	*started = r.id
	go func() {
		n := &c.named
		n.once.Do(func() { n.open(c.Communicator) })
		if n.err != nil {
			r.end(n.err)
			return
		}
		h := n.queue.Allreduce(name, t, op, wire)
		r.end(h.Wait(background))
	}()
	return nil
}

func (n *named) open(c *collective.Communicator) {
	n.comm, n.err = c.Dup(background, "named")
	if n.err == nil {
		n.queue = queue.New(queue.Options{Comm: n.comm, OnStall: warn})
	}
}

// warn tells people, as Horovod does.
func warn(s queue.Stall) {
	fmt.Fprintf(os.Stderr, "regroup: %q has been waiting for %v for ranks %v, which have not started it\n",
		s.Name, s.Pending.Round(time.Second), s.Missing)
}

// close ends it. Nothing goes on any more, and nothing more comes.
func (n *named) close() {
	n.once.Do(func() { n.err = collective.ErrClosed })
	if n.queue != nil {
		n.queue.Close()
		_ = n.comm.Close() // always nil
	}
}
