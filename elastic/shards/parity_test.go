package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/elastic/reshard"
)

// world is a sharded state whose members come and go.
type world struct {
	t          *testing.T
	tensors    []reshard.Tensor
	content    [][]byte // of each tensor, now
	members    []*worker
	generation uint64
	perNode    int           // members of a node that follow each other; 0 = 1
	received   atomic.Uint64 // bytes, in all generations
}

type worker struct {
	state *State
	parts []part // as they are registered
	kept  []Commit
}

func newWorld(t *testing.T, n int, o Options, tensors ...reshard.Tensor) *world {
	w := &world{t: t, tensors: tensors}
	for range n {
		w.members = append(w.members, &worker{state: New(o)})
	}
	for _, x := range tensors {
		w.content = append(w.content, make([]byte, x.Bytes()))
	}
	w.train(1)
	return w
}

// train makes the content that of a step.
func (w *world) train(step uint32) {
	x := step
	for _, content := range w.content {
		for i := range content {
			x = x*1664525 + 1013904223
			content[i] = byte(x >> 24)
		}
	}
}

// deal gives each member its part of each tensor along the first dimension.
func (w *world) deal() {
	for rank, m := range w.members {
		m.parts = nil
		for _, x := range w.tensors {
			b := reshard.Whole(x.Shape)
			if len(x.Shape) > 0 {
				per := (x.Shape[0] + len(w.members) - 1) / len(w.members)
				b.Offset[0] = min(rank*per, x.Shape[0])
				b.Size[0] = min(per, x.Shape[0]-b.Offset[0])
			}
			m.parts = append(m.parts, part{tensor: x, box: b, memory: make([]byte, b.Elements()*x.Width)})
		}
	}
}

// each calls f with each part, what its memory should have, and where that is.
func (w *world) each(f func(rank int, p part, memory, want []byte)) {
	for rank, m := range w.members {
		for i, p := range m.parts {
			reshard.Runs(p.box, p.box, reshard.Whole(p.tensor.Shape), p.tensor.Width, func(r reshard.Run) {
				f(rank, p, p.memory[r.At:r.At+r.Bytes], w.content[i][r.In:r.In+r.Bytes])
			})
		}
	}
}

// run has the members of a new generation execute f, and settle what it began.
func (w *world) run(f func(ctx context.Context, c *collective.Communicator, m *worker) error) {
	w.t.Helper()
	w.generation++
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), 2*time.Minute, errors.New("the test hangs"))
	defer cancel()
	network := inproc.NewNetwork()
	endpoints := make([]*collective.Endpoint, len(w.members))
	for rank := range w.members {
		l, err := network.Listen(fmt.Sprint(rank))
		if err != nil {
			w.t.Fatal(err)
		}
		endpoints[rank] = collective.NewEndpoint(l)
		defer func() { _ = endpoints[rank].Close() }()
	}
	var members sync.WaitGroup
	for rank, m := range w.members {
		members.Go(func() {
			c, err := collective.New(ctx, collective.Options{
				Job: "j", Generation: w.generation, Rank: rank, World: len(w.members), Endpoint: endpoints[rank],
				Peers: func(_ context.Context, r int) (string, error) { return fmt.Sprint(r), nil },
			})
			if err == nil {
				err = errors.Join(f(ctx, c, m), m.state.Settle(), c.Barrier(ctx), c.Close())
			}
			if err != nil {
				w.t.Errorf("generation %d, rank %d of %d: %v", w.generation, rank, len(w.members), err)
			}
		})
	}
	members.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// begin has the members choose a commit, and fill the parts that they have in this generation.
func (w *world) begin(then func(ctx context.Context, c *collective.Communicator, m *worker)) (chosen Commit) {
	w.t.Helper()
	w.deal()
	w.run(func(ctx context.Context, c *collective.Communicator, m *worker) error {
		commit, found, err := m.state.Choose(ctx, c, m.kept)
		if err != nil {
			return err
		}
		if !found {
			w.each(func(rank int, _ part, memory, want []byte) {
				if w.members[rank] == m {
					copy(memory, want)
				}
			})
		}
		for _, p := range m.parts {
			if err := m.state.Register(p.tensor, p.box, p.memory, false); err != nil {
				return err
			}
		}
		n, err := m.state.Sync(ctx, c, commit, found, fmt.Sprint(c.Rank()/max(1, w.perNode)), 0)
		if err != nil {
			return err
		}
		w.received.Add(n)
		if c.Rank() == 0 {
			chosen = commit
		}
		then(ctx, c, m)
		return nil
	})
	return chosen
}

// check compares what the members have with the content, bit by bit.
func (w *world) check(what string) {
	w.t.Helper()
	w.each(func(rank int, p part, memory, want []byte) {
		if !bytes.Equal(memory, want) {
			w.t.Fatalf("%s: rank %d of %d has another %s%v", what, rank, len(w.members), p.tensor.Name, p.box)
		}
	})
}

func save(commit Commit) func(ctx context.Context, c *collective.Communicator, m *worker) {
	return func(ctx context.Context, c *collective.Communicator, m *worker) {
		m.kept = append(m.kept, commit)
		m.state.Save(ctx, c, commit, Parting{}, false)
	}
}

// TestParityOfTheCommitBeforeIsKept by a member that has nothing else of it: it was a newcomer when
// the parity was made again.
func TestParityOfTheCommitBeforeIsKept(t *testing.T) {
	before, chosen := Commit{Generation: 1, Step: 4}, Commit{Generation: 3, Step: 5}
	s := New(Options{Parity: 2})
	s.sets = []*set{{commit: chosen, own: true}}
	s.protections = []*protection{{commit: before, kept: true}, {commit: chosen}}
	if got := s.before(chosen); got != before {
		t.Errorf("before %v: %v, want %v", chosen, got, before)
	}
}

var small = []reshard.Tensor{
	{Name: "w", Type: "float64", Width: 8, Shape: []int{131, 5}},
	{Name: "b", Type: "int16", Width: 2, Shape: []int{67}},
	{Name: "step", Type: "int64", Width: 8},
}

// kept is what a member keeps for others of a commit, in bytes.
func (s *State) kept(commit Commit) (n int) {
	for _, x := range s.sets {
		if x.commit == commit && !x.own {
			n += len(x.data)
		}
	}
	for _, p := range s.protections {
		if p.commit == commit && p.kept {
			n += len(p.parity)
		}
	}
	return n
}

// TestParityTakesAPartOfACopy counts what the members keep for others.
func TestParityTakesAPartOfACopy(t *testing.T) {
	for n := 2; n <= 11; n++ {
		largest := 0 // copy
		commit := Commit{Generation: 1, Step: 1}
		copies := newWorld(t, n, Options{Copies: 1}, small...)
		copies.begin(save(commit))
		for _, m := range copies.members {
			largest = max(largest, m.state.kept(commit))
		}
		for _, k := range []int{2, 3, 4, 8} {
			w := newWorld(t, n, Options{Parity: k}, small...)
			w.begin(save(commit))
			for rank, m := range w.members {
				if got, most := m.state.kept(commit), largest/min(k, n-1)+8; got == 0 || got > most {
					t.Errorf("%d members, parity of %d: rank %d keeps %d bytes, at most %d of a copy's %d are due", n, k, rank, got, most, largest)
				}
			}
		}
	}
}

// TestLostMembersAreRebuilt loses each member in turn, and then one after the other until a single
// one is left, without a commit in between: its state is that of the commit, to the bit.
func TestLostMembersAreRebuilt(t *testing.T) {
	for n := 2; n <= 7; n++ {
		for victim := range n {
			w := newWorld(t, n, Options{Parity: 2}, small...)
			first, second := Commit{Generation: 1, Step: 1}, Commit{Generation: 2, Step: 2}
			w.begin(save(first))
			w.train(2)
			w.begin(func(ctx context.Context, c *collective.Communicator, m *worker) {
				w.each(func(rank int, _ part, memory, want []byte) {
					if rank == c.Rank() {
						copy(memory, want)
					}
				})
				save(second)(ctx, c, m)
			})
			for len(w.members) > 1 {
				at := victim % len(w.members)
				w.members = slices.Delete(w.members, at, at+1)
				if chosen := w.begin(func(_ context.Context, _ *collective.Communicator, m *worker) {
					if _, survives := m.state.Whole(); survives().Members != 0 {
						t.Errorf("%d of %d members: %d losses are survived", len(w.members), n, survives().Members)
					}
				}); chosen != second {
					t.Fatalf("%d of %d members choose %v", len(w.members), n, chosen)
				}
				w.check(fmt.Sprintf("%d of %d members", len(w.members), n))
			}
		}
	}
}

// TestStripesThatAreSentInSeveralMessages: more than is sent at once.
func TestStripesThatAreSentInSeveralMessages(t *testing.T) {
	w := newWorld(t, 3, Options{Parity: 2}, reshard.Tensor{Name: "w", Type: "float32", Width: 4, Shape: []int{4099, 2053}})
	w.begin(save(Commit{Generation: 1, Step: 1}))
	w.members = w.members[:2]
	w.begin(func(context.Context, *collective.Communicator, *worker) {})
	w.check("two of three members")
	// A third of the rows is rebuilt, each from one other stripe, and as many change their rank.
	if got, want := w.received.Load(), uint64(2*len(w.content[0])/3); got < want-want/100 || got > want+want/100 {
		t.Errorf("%d bytes were received, want %d", got, want)
	}
	w.members = w.members[1:]
	w.begin(func(context.Context, *collective.Communicator, *worker) {})
	w.check("one of three members")
}
