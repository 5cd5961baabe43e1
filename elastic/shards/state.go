package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/regroup-io/regroup/elastic/internal/pages"
	"github.com/regroup-io/regroup/elastic/reshard"
)

// Communicator is how the members of a generation communicate: a collective.Communicator.
type Communicator interface {
	place
	exchange
	Abort(cause error)
	Failed() error
}

// place is a member's place in a generation.
type place interface {
	Rank() int
	World() int
	Generation() uint64
}

// exchange is what members tell each other.
type exchange interface {
	AllgatherBlobs(ctx context.Context, mine []byte) ([][]byte, error)
	Barrier(ctx context.Context) error
	Send(ctx context.Context, to int, b []byte) error
	Recv(ctx context.Context, from int, b []byte) error
}

// Options of a state.
type Options struct {
	// Copies is the number of other members that keep each part: so many may be lost at once. 0 =
	// a part whose member is lost is lost, unless others need it as well.
	Copies int
	// Parity is how many other members at least, if there are so many, keep the parity of a
	// member's parts together (reshard.Groups): of these members and that one, one may be lost. It
	// takes 1/Parity of the memory of a copy. 0 = none.
	Parity int
}

// Check reports options that make no sense.
func (o Options) Check() error {
	switch {
	case o.Copies < 0:
		return fmt.Errorf("Sharding.Copies is %d", o.Copies)
	case o.Parity < 0:
		return fmt.Errorf("Sharding.Parity is %d", o.Parity)
	case o.Parity == 1:
		return errors.New("Sharding.Parity is 1, which is a copy: set Sharding.Copies to 1 instead")
	case o.Parity > 0 && o.Copies > 0:
		return fmt.Errorf("Sharding.Parity is %d and Sharding.Copies is %d: choose one of them", o.Parity, o.Copies)
	}
	return nil
}

// String says what is kept.
func (o Options) String() string {
	if o.Parity > 0 {
		return fmt.Sprintf("parity of %d", o.Parity)
	}
	return fmt.Sprintf("%d copies", o.Copies)
}

// claim is how many losses a commit survives in a world.
func (o Options) claim(world int) int { return min(max(o.Copies, min(o.Parity, 1)), world-1) }

// State is one member's part of a sharded state. It belongs to one goroutine at a time.
type State struct {
	options Options
	most    int               // bytes that are sent at once; all members have the same
	parts   []part            // registered in this generation
	former  map[string][]part // registered in the generation before, by the name of the tensor
	filled  Commit            // what was in their memory when it was last filled or saved; zero = anything
	named   map[string][]int  // the indices of parts, by the name of the tensor
	sets    []*set            // of commits
	memory  pages.Pool        // of sets and parity
	offers  []offer           // of the members, by rank, from Choose until Sync
	peers   agreement         // after a Sync: who keeps copies
	leaving agreement         // the same for a commit after which nobody can say who leaves
	layout  *table            // after a Sync: the tensors
	known   []reshard.Tensor  // all that the members had parts of after the last Sync
	// after a Sync: the parts of all members, by rank, of layout
	registered [][]reshard.Piece
	whole      Commit              // the newest commit that all members know to be whole
	last       Commit              // the last one that was saved in this generation; zero = none
	withdrawn  Commit              // see Withdraw; zero = none
	bringing   atomic.Pointer[set] // whose parts the program brings to its memory; nil = none
	copying    *copying            // nil = nothing is being sent
	share      share               // after a Sync: what this member writes to disk

	group       *group            // after a Sync, with Options.Parity: who keeps parity with this member
	protections []*protection     // of commits
	chosen      holding           // from Choose until Sync: what the members have of the commit
	holds       func() Redundancy // see Whole
	settled     func() Redundancy // what last, or whole if that is zero, survives when all have settled
	planned     func() Redundancy // after a Sync: what a commit of the generation survives
	parting     func() Redundancy // the same of one after which members leave
	received    uint64            // bytes, to rebuild what was lost, by Choose
	unchanged   int               // bytes that the last Sync has found in place
	copies      func()            // called before live parts are copied, by tests; nil = nothing
}

// agreement is what the members know of each other after a Sync.
type agreement struct {
	copies [][]reshard.Copy // by rank: of its parts
	nodes  []string         // by rank
}

// New returns a state without parts.
func New(o Options) *State { return &State{options: o, most: moveBytes} }

// Options are those of New.
func (s *State) Options() Options { return s.options }

// Register adds memory for a part of a tensor, between Choose and Sync. A member that has no part
// of a tensor registers an empty box, so that a tensor can be missed. memory has the elements of
// the box in row-major order. It must stay where it is until the next Choose.
//
// unchanged says that it is memory of this part in the generation before, and that nothing was
// written to it since the last Save, Restore or Sync that was without error: it need not be filled
// if that was with the commit that is chosen.
func (s *State) Register(t reshard.Tensor, b reshard.Box, memory []byte, unchanged bool) error {
	p := part{tensor: t, box: b, memory: memory}
	if unchanged {
		p.has = s.formerly(p)
	}
	switch {
	case t.Width < 1:
		return fmt.Errorf("tensor %s: elements of %d bytes", t.Name, t.Width)
	case slices.ContainsFunc(t.Shape, func(n int) bool { return n < 0 }) || !b.Within(t.Shape):
		return fmt.Errorf("tensor %s: the part %v is not within the shape %v", t.Name, b, t.Shape)
	case len(memory) != p.bytes():
		return fmt.Errorf("tensor %s: %d bytes of memory for the part %v, which has %d", t.Name, len(memory), b, p.bytes())
	}
	for _, i := range s.named[t.Name] {
		o := s.parts[i]
		if !o.tensor.Equal(t) {
			return fmt.Errorf("tensor %s is registered as %s %v and as %s %v", t.Name, o.tensor.Type, o.tensor.Shape, t.Type, t.Shape)
		}
		if both, overlap := o.box.Intersect(b); overlap || o.box.Equal(b) {
			return fmt.Errorf("tensor %s: %v is registered twice", t.Name, both)
		}
	}
	s.named[t.Name] = append(s.named[t.Name], len(s.parts))
	s.parts = append(s.parts, p)
	return nil
}

// drop forgets the sets that are not worth keeping. Their memory is used again.
func (s *State) drop(useless func(Commit) bool) {
	s.sets = slices.DeleteFunc(s.sets, func(x *set) bool {
		if !useless(x.commit) {
			return false
		}
		if x.pins == 0 {
			s.memory.Put(x.data)
		}
		return true
	})
	s.protections = slices.DeleteFunc(s.protections, func(p *protection) bool {
		if !useless(p.commit) {
			return false
		}
		if p.parity != nil {
			s.memory.Put(p.parity)
		}
		return true
	})
}
