//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
)

// communicator is what a rg_comm stands for.
type communicator struct {
	*collective.Communicator
	job      string
	borrowed bool // by an elastic session, which closes it

	line    line   // of collective operations
	ended   *ended // of all that were started
	started sync.WaitGroup
	named   named

	// Of a subset: what it is part of, whose Communicator it has; its name; and its ranks' numbers there.
	parent *communicator
	name   string
	ranks  []int

	mu      sync.Mutex
	closing bool
	subsets []*communicator
	sends   map[int]*line // direct messages, by rank
	posts   map[int]*post
	gpus    accelerated
}

var communicators table[*communicator]

func newCommunicator(c *collective.Communicator, job string) *communicator {
	return &communicator{
		Communicator: c, job: job, ended: newEnded(), sends: map[int]*line{}, posts: map[int]*post{},
	}
}

// do carries an operation out on the calling thread, or starts it. What was started before comes before it.
func (c *communicator) do(l *line, started *uint64, run func() error) error {
	if started == nil && l.waiting.Load() == 0 {
		return run()
	}
	r, err := c.start(run)
	if err != nil {
		return err
	}
	l.add(r)
	return r.answer(started)
}

// answer is what the call returns that has started r.
func (r *request) answer(started *uint64) error {
	if started == nil {
		return r.wait(-1)
	}
	*started = r.id
	return nil
}

func (c *communicator) start(run func() error) (*request, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, collective.ErrClosed
	}
	c.started.Add(1)
	r := &request{of: c, run: run, done: make(chan struct{})}
	r.id = requests.add(r)
	return r, nil
}

// sending is the line of messages to a rank.
func (c *communicator) sending(to int) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sends[to] == nil {
		c.sends[to] = new(line)
	}
	return c.sends[to]
}

// close leaves the generation and waits for what was started: it fails now, or is just ending.
func (c *communicator) close() {
	for _, g := range c.engines() {
		g.rest() // before c, or peers would take it for a loss
	}
	c.closeSubsets()
	c.named.close() // before c too
	if c.parent == nil {
		_ = c.Close() // always nil
	}
	c.rest()
	if c.parent != nil {
		c.parent.dropSubset(c)
	}
}

// endsWithin is how long a generation that did not fail waits for operations by name that nobody has waited for: those that
// all ranks have started end at once, and others never.
const endsWithin = 2 * time.Second

// rest lets nothing more be started, and waits until nothing goes on.
func (c *communicator) rest() {
	c.mu.Lock()
	again := c.closing
	c.closing = true
	c.mu.Unlock()
	c.closeSubsets()
	ended := make(chan struct{})
	go func() { c.started.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(endsWithin):
	}
	if !again {
		c.named.close()
	}
	<-ended
	if !again {
		for _, g := range c.engines() {
			g.rest()
		}
		close(c.ended.closed)
	}
}

// abort ends the generation on all ranks.
func (c *communicator) abort(rank int, why string) {
	if why == "" {
		why = "no reason given"
	}
	cause := errors.New(why)
	if rank >= 0 {
		cause = &collective.PeerLostError{Rank: rank, Cause: cause}
	}
	c.Abort(cause)
}

func (c *communicator) describe() ([]byte, error) {
	return json.Marshal(struct {
		Job        string `json:"job"`
		Generation uint64 `json:"generation"`
		Rank       int    `json:"rank"`
		World      int    `json:"world"`
		Busy       int32  `json:"busy"`
	}{c.job, c.Generation(), c.Rank(), c.World(), c.line.waiting.Load()})
}

// gatherBytes puts what the ranks send one after the other.
func (c *communicator) gatherBytes(send []byte) (all [][]byte, err error) {
	run := func() error {
		var err error
		all, err = c.AllgatherBlobs(context.Background(), send)
		return err
	}
	return all, c.do(&c.line, nil, run)
}

// background is the context of every operation: who wants one to end aborts its communicator.
var background = context.Background()
