package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"

	"github.com/regroup-io/regroup/collective"
)

// network is the communicator of one generation, in lock-step: when every goroutine of every member
// waits, one thing happens that a member waits for, which a seed chooses. So a seed replays.
//
// A message is on its way when Send has returned, and arrives when Recv does. A collective returns
// to each rank by itself, at any time after all ranks have come to it. What a rank that dies has
// sent arrives up to some message; the others notice its death one by one, and communicate until
// they do.
//
// What the goroutines of a member do between two deliveries has no order: the race detector watches
// that.
type network struct {
	rand       *rand.Rand
	generation uint64
	faults     []*fault
	log        func(format string, args ...any)
	// arrived is called when all ranks have come to a collective, and it has returned to nobody.
	// Every goroutine waits.
	arrived func(p phase, op string)

	mu     sync.Mutex
	ends   []*end  // by rank
	calls  []*call // what is waited for
	meets  []*meet // the collectives, in their order
	failed error   // why the generation is over; nil = it is not
	damage bool    // the next message
	steps  int
}

// end is the communicator of one rank.
type end struct {
	*network

	rank     int
	weight   int        // of what it waits for, beside that of others
	phase    phase      // of its program
	dead     bool       // it was killed
	noticed  bool       // that the generation is over
	ended    bool       // its program has
	met      int        // collectives that it has begun
	incoming [][][]byte // messages on their way, by the sender
	messages []int      // that have arrived, by the sender
	received int        // bytes, without hashes
}

// phase is what a member's program does.
type phase string

const (
	choosing        phase = "choosing"
	rebuildingParts phase = "rebuilding" // messages while it chooses
	syncing         phase = "syncing"
	training        phase = "training" // copies are under way
	settling        phase = "settling"
	agreeing        phase = "agreeing"
	parting         phase = "parting" // after the last commit before a planned change
)

var phases = []phase{choosing, rebuildingParts, syncing, training, settling, agreeing, parting}

// fault happens after the n-th thing that happens to members in a phase.
type fault struct {
	phase phase
	n     int
	kind  string // kill, cut or damage
	ranks []int  // to kill
}

func (f *fault) String() string {
	if f.kind == "kill" {
		return fmt.Sprintf("kill %v at %s %d", f.ranks, f.phase, f.n)
	}
	return fmt.Sprintf("%s at %s %d", f.kind, f.phase, f.n)
}

// call is something that a goroutine waits for.
type call struct {
	end     *end
	kind    string // send, recv, meet, copy or bring
	peer    int    // a rank, or the number of the collective
	bytes   []byte
	blobs   [][]byte // of a collective
	arrived bool     // at the collective
	done    chan error
}

// meet is one collective.
type meet struct {
	op    string
	blobs [][]byte // by rank
	here  int      // ranks that have come to it
}

var errKilled = errors.New("this member was killed")

func newNetwork(world int, generation uint64, r *rand.Rand, faults []*fault) *network {
	n := &network{rand: r, generation: generation, faults: faults}
	for rank := range world {
		n.ends = append(n.ends, &end{network: n, rank: rank, weight: []int{1, 4, 4, 16}[r.IntN(4)], incoming: make([][][]byte, world), messages: make([]int, world)})
	}
	return n
}

func (e *end) Rank() int          { return e.rank }
func (e *end) World() int         { return len(e.ends) }
func (e *end) Generation() uint64 { return e.generation }

// enter begins a phase of the member's program.
func (e *end) enter(p phase) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phase = p
}

// bytes is how many bytes have arrived, without hashes.
func (e *end) bytes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received
}

// leave ends the member's program.
func (e *end) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
}

func (e *end) Send(ctx context.Context, to int, b []byte) error {
	return e.wait(ctx, &call{kind: "send", peer: to, bytes: b})
}

func (e *end) Recv(ctx context.Context, from int, b []byte) error {
	return e.wait(ctx, &call{kind: "recv", peer: from, bytes: b})
}

func (e *end) Barrier(ctx context.Context) error {
	_, err := e.meet(ctx, "barrier", nil)
	return err
}

func (e *end) AllgatherBlobs(ctx context.Context, mine []byte) ([][]byte, error) {
	return e.meet(ctx, "gather", mine)
}

// meet is a collective in which each rank gives a blob, and has all of them in the end.
func (e *end) meet(ctx context.Context, op string, mine []byte) ([][]byte, error) {
	e.mu.Lock()
	k := e.met
	e.met++
	if k == len(e.meets) {
		e.meets = append(e.meets, &meet{op: op, blobs: make([][]byte, len(e.ends))})
	}
	m := e.meets[k]
	e.mu.Unlock()
	if m.op != op {
		return nil, fmt.Errorf("rank %d is at %s, and others at %s", e.rank, op, m.op)
	}
	c := &call{kind: "meet", peer: k, bytes: mine}
	err := e.wait(ctx, c)
	return c.blobs, err
}

func (e *end) Abort(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail(cause)
	e.notice()
}

func (e *end) Failed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over()
}

// over is why the rank can communicate no more.
func (e *end) over() error {
	switch {
	case e.dead:
		return errKilled
	case e.noticed:
		return e.failed
	}
	return nil
}

func (e *end) wait(ctx context.Context, c *call) error {
	c.end, c.done = e, make(chan error, 1)
	e.mu.Lock()
	if err := e.over(); err != nil {
		e.mu.Unlock()
		return err
	}
	e.calls = append(e.calls, c)
	e.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		e.remove(func(o *call) bool { return o == c })
		return context.Cause(ctx)
	}
}

func (n *network) remove(which func(*call) bool) { n.calls = slices.DeleteFunc(n.calls, which) }

func (n *network) finish(c *call, err error) {
	n.remove(func(o *call) bool { return o == c })
	c.done <- err
}

// fail ends the generation. Who has not noticed goes on.
func (n *network) fail(cause error) {
	if n.failed == nil {
		n.failed = cause
	}
}

// notice ends everything that the rank waits for.
func (e *end) notice() {
	e.noticed = true
	for _, c := range slices.Clone(e.calls) {
		if c.end == e {
			e.finish(c, e.over())
		}
	}
}

func (e *end) kill() {
	e.dead = true
	for _, o := range e.ends { // of what it has sent the end is lost
		sent := o.incoming[e.rank]
		o.incoming[e.rank] = sent[:e.rand.IntN(len(sent)+1)]
	}
	e.fail(&collective.PeerLostError{Rank: e.rank, Generation: e.generation, Cause: errKilled})
	e.notice()
}

// run makes things happen until all programs have ended. It returns an error if one never does.
func (n *network) run() error {
	for {
		synctest.Wait()
		n.mu.Lock()
		more, err := n.step()
		n.mu.Unlock()
		if !more || err != nil {
			return err
		}
	}
}

// stop ends all programs.
func (n *network) stop() {
	for {
		synctest.Wait()
		n.mu.Lock()
		n.fail(errors.New("the simulation is over"))
		left := 0
		for _, e := range n.ends {
			if e.notice(); !e.ended {
				left++
			}
		}
		n.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// option is something that can happen.
type option struct {
	end   *end
	what  string
	phase phase
	do    func() error
}

func (n *network) step() (more bool, err error) {
	options := n.options()
	if len(options) == 0 {
		if i := slices.IndexFunc(n.ends, func(e *end) bool { return !e.ended }); i >= 0 {
			return false, fmt.Errorf("rank %d waits forever: %s", i, n.ends[i].phase)
		}
		return false, nil
	}
	total := 0
	for _, o := range options {
		total += o.end.weight
	}
	k := n.rand.IntN(total)
	i := 0
	for k >= options[i].end.weight {
		k -= options[i].end.weight
		i++
	}
	o := options[i]
	n.steps++
	n.log("      %d %s", o.end.rank, o.what)
	if err := o.do(); err != nil {
		return false, err
	}
	n.strike(o.phase)
	return true, nil
}

// options are all that can happen, in an order that depends on nothing but what is waited for.
func (n *network) options() (list []option) {
	slices.SortFunc(n.calls, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.end.rank, b.end.rank), cmp.Compare(a.kind, b.kind), cmp.Compare(a.peer, b.peer))
	})
	for _, c := range n.calls {
		e := c.end
		o := option{e, fmt.Sprintf("%s %d", c.kind, c.peer), e.phase, nil}
		if e.phase == choosing && c.kind != "meet" {
			o.phase = rebuildingParts
		}
		switch c.kind {
		case "send":
			o.do = func() error { return n.send(c) }
		case "recv":
			if len(e.incoming[c.peer]) == 0 {
				continue
			}
			o.do = func() error { return n.recv(c) }
		case "copy", "bring":
			o.do = func() error { n.finish(c, nil); return nil }
		case "meet":
			m := n.meets[c.peer]
			switch {
			case !c.arrived:
				o.what = fmt.Sprintf("%s %d begins", m.op, c.peer)
				o.do = func() error { n.arrive(c, m); return nil }
			case m.here == len(n.ends):
				o.what = fmt.Sprintf("%s %d ends", m.op, c.peer)
				o.do = func() error { c.blobs = m.blobs; n.finish(c, nil); return nil }
			default:
				continue
			}
		}
		list = append(list, o)
	}
	for _, e := range n.ends {
		if n.failed != nil && !e.noticed && !e.ended {
			list = append(list, option{e, "notices that the generation is over", e.phase, func() error { e.notice(); return nil }})
		}
	}
	return list
}

func (n *network) send(c *call) error {
	b := slices.Clone(c.bytes)
	if n.damage && len(b) > 0 {
		n.damage = false
		b[n.rand.IntN(len(b))] ^= 1 << n.rand.IntN(8)
	}
	to := n.ends[c.peer]
	to.incoming[c.end.rank] = append(to.incoming[c.end.rank], b)
	n.finish(c, nil)
	return nil
}

func (n *network) recv(c *call) error {
	e := c.end
	b := e.incoming[c.peer][0]
	e.incoming[c.peer] = e.incoming[c.peer][1:]
	if len(b) != len(c.bytes) {
		return fmt.Errorf("rank %d wants %d bytes of rank %d, which has sent %d", e.rank, len(c.bytes), c.peer, len(b))
	}
	copy(c.bytes, b)
	if e.messages[c.peer]%2 == 1 { // the first one is the hash of the next
		e.received += len(b)
	}
	e.messages[c.peer]++
	n.finish(c, nil)
	return nil
}

func (n *network) arrive(c *call, m *meet) {
	c.arrived = true
	m.blobs[c.end.rank] = slices.Clone(c.bytes)
	if m.here++; m.here == len(n.ends) && n.arrived != nil {
		n.arrived(c.end.phase, m.op)
	}
}

// strike makes the faults happen that are due.
func (n *network) strike(p phase) {
	for _, f := range n.faults {
		if f.phase != p {
			continue
		}
		if f.n--; f.n != 0 {
			continue
		}
		n.log("      %s", f.kind)
		switch f.kind {
		case "kill":
			for _, rank := range f.ranks {
				if e := n.ends[rank]; !e.dead {
					e.kill()
				}
			}
		case "cut":
			n.fail(&collective.PeerLostError{Generation: n.generation, Cause: collective.ErrSilent})
		case "damage":
			n.damage = true
		}
	}
}
