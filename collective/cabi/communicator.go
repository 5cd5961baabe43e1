//go:build cgo

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/internal/serial"
	"github.com/regroup-io/regroup/collective/internal/tagged"
	"github.com/regroup-io/regroup/collective/queue"
)

// communicator is the object behind a rg_comm.
type communicator struct {
	*collective.Communicator
	job      string
	borrowed bool // by an elastic session, which closes it

	ops         *serial.Queue    // collective operations that were started, of all origins
	completions *completionQueue // of all requests
	started     sync.WaitGroup
	named       named
	messages    *tagged.Messages

	// Of a subgroup or another origin: the communicator that it is part of, and whose Communicator
	// it has. Of a subgroup: its name; and its ranks in there.
	parent *communicator
	name   string
	ranks  []int

	mu        sync.Mutex
	closing   bool
	subgroups []*communicator
	sends     map[int]*serial.Queue // point-to-point messages, by rank
	gpus      gpuEngines
}

func newCommunicator(c *collective.Communicator, job string) *communicator {
	return &communicator{
		Communicator: c, job: job, ops: new(serial.Queue), completions: newCompletionQueue(), sends: map[int]*serial.Queue{}, messages: tagged.New(c),
	}
}

// do runs an operation on the calling thread, or starts it. It runs after all that were started
// before.
func (c *communicator) do(q *serial.Queue, started *uint64, run func() error) error {
	if started == nil && q.Pending() == 0 {
		return run()
	}
	r, err := c.newRequest()
	if err != nil {
		return err
	}
	q.Add(run, r.end) // never closed
	return r.answer(started)
}

// answer sets the ID of r, or waits for r if the caller wants none.
func (r *request) answer(started *uint64) error {
	if started == nil {
		return r.wait(-1)
	}
	*started = r.id
	return nil
}

// begin counts an operation that drain waits for, until started.Done is called.
func (c *communicator) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return collective.ErrClosed
	}
	c.started.Add(1)
	return nil
}

func (c *communicator) newRequest() (*request, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	r := &request{of: c, done: make(chan struct{})}
	r.id = addHandle(r)
	return r, nil
}

func (c *communicator) sendQueue(to int) *serial.Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sends[to] == nil {
		c.sends[to] = new(serial.Queue)
	}
	return c.sends[to]
}

// close leaves the generation and waits for what was started, which fails now or is about to end.
func (c *communicator) close() {
	for _, g := range c.engines() {
		g.drain() // before c, or peers would take it for a loss
	}
	c.closeSubgroups()
	c.named.close() // before c too
	if c.parent == nil {
		_ = c.Close() // always nil
	}
	c.drain()
	if c.parent != nil {
		c.parent.removeSubgroup(c)
	}
}

// endsWithin is how long a generation that did not fail waits for named operations that nobody has
// waited for: those that all ranks have started end at once, the others never.
const endsWithin = 2 * time.Second

// drain refuses new operations and waits until none is running.
func (c *communicator) drain() {
	c.mu.Lock()
	again := c.closing
	c.closing = true
	c.mu.Unlock()
	c.closeSubgroups()
	completions := make(chan struct{})
	go func() { c.started.Wait(); close(completions) }()
	select {
	case <-completions:
	case <-time.After(endsWithin):
	}
	if !again {
		c.named.close()
	}
	<-completions
	if !again {
		for _, g := range c.engines() {
			g.drain()
		}
		close(c.completions.closed)
	}
}

func (c *communicator) abort(rank int, why string) {
	why = cmp.Or(why, "no reason given")
	cause := errors.New(why)
	if rank >= 0 {
		cause = &collective.PeerLostError{Rank: rank, Cause: cause}
	}
	c.Abort(cause)
}

// waitFailed waits for the end of the communicator, and returns why it has ended.
func (c *communicator) waitFailed(within time.Duration) error {
	defer c.AwaitExternal()()
	select {
	case <-c.Context().Done():
		return cmp.Or(c.Failed(), collective.ErrClosed)
	case <-expiry(within):
		return errTimeout
	}
}

func (c *communicator) describe() ([]byte, error) {
	return json.Marshal(struct {
		Job        string `json:"job"`
		Generation uint64 `json:"generation"`
		Rank       int    `json:"rank"`
		World      int    `json:"world"`
		Busy       int    `json:"busy"`
	}{c.job, c.Generation(), c.Rank(), c.World(), c.ops.Pending()})
}

func (c *communicator) gatherBytes(send []byte) (all [][]byte, err error) {
	run := func() error {
		var err error
		all, err = c.AllgatherBlobs(context.Background(), send)
		return err
	}
	return all, c.do(c.ops, nil, run)
}

// background is the context of every operation: to end one, abort its communicator.
var background = context.Background()

// newSubgroup returns a communicator among some of the ranks, which has named operations only; all
// of those call it. Its first operation connects it. It belongs to c, and ends with it at the
// latest.
func (c *communicator) newSubgroup(name string, ranks []int) (*communicator, error) {
	place := slices.Index(ranks, c.Rank())
	for i, r := range ranks {
		if r < 0 || r >= c.World() || i > 0 && r <= ranks[i-1] {
			return nil, invalidf("the ranks %v are not ascending and within 0 to %d", ranks, c.World()-1)
		}
	}
	if name == "" || place < 0 {
		return nil, invalidf("a subset has a name, and this rank, %d, among its ranks %v", c.Rank(), ranks)
	}
	s := newCommunicator(c.Communicator, c.job)
	s.parent, s.name, s.ranks, s.named.options = c, name, slices.Clone(ranks), c.named.options
	return c.addSubgroup(s)
}

// minOrigin is the first origin that hosts may use; maxOrigin is the last.
const (
	minOrigin = int(collective.OriginElastic) + 1
	maxOrigin = 15
)

// withOrigin returns the communicator for operations of another origin, which come after all that
// were started before on any of them. It belongs to c, and ends with it at the latest.
func (c *communicator) withOrigin(origin int) (*communicator, error) {
	if origin < minOrigin || origin > maxOrigin {
		return nil, invalidf("origin %d is not within %d to %d", origin, minOrigin, maxOrigin)
	}
	o := newCommunicator(c.WithOrigin(collective.Origin(origin)), c.job)
	o.parent, o.ops, o.named.options = c, c.ops, c.named.options
	return c.addSubgroup(o)
}

// addSubgroup makes s end with c.
func (c *communicator) addSubgroup(s *communicator) (*communicator, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, collective.ErrClosed
	}
	c.subgroups = append(c.subgroups, s)
	return s, nil
}

// open makes the connections of named operations.
func (c *communicator) open(ctx context.Context) (*collective.Communicator, error) {
	if c.ranks != nil {
		return c.Subgroup(ctx, c.name, c.ranks)
	}
	return c.Dup(ctx, "named")
}

func (c *communicator) removeSubgroup(s *communicator) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subgroups = slices.DeleteFunc(c.subgroups, func(other *communicator) bool { return other == s })
}

func (c *communicator) closeSubgroups() {
	c.mu.Lock()
	open := slices.Clone(c.subgroups)
	c.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// size is the number of ranks of named operations.
func (c *communicator) size() int {
	if c.ranks != nil {
		return len(c.ranks)
	}
	return c.World()
}

// callerRank translates a rank of this communicator to the rank in the world.
func (c *communicator) callerRank(rank int) int {
	if c.ranks == nil || rank < 0 || rank >= len(c.ranks) {
		return rank
	}
	return c.ranks[rank]
}

// toCaller translates an error to ranks in the world: the program knows no others.
func (c *communicator) toCaller(err error) error {
	var lost *collective.PeerLostError
	var joined *queue.JoinedError
	switch {
	case c.ranks == nil || errors.Is(err, collective.ErrAborted):
		return err
	case errors.As(err, &lost):
		e := *lost
		e.Rank = c.callerRank(lost.Rank)
		return &e
	case errors.As(err, &joined):
		e := *joined
		e.Ranks = nil
		for _, r := range joined.Ranks {
			e.Ranks = append(e.Ranks, c.callerRank(r))
		}
		return &e
	}
	return err
}
