package shards

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/elastic/internal/pages"
	"github.com/regroup-io/regroup/elastic/reshard"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// Commit is the name of a commit.
type Commit = statesync.Commit

// part is a part of a tensor, and where its bytes are: in the memory of the program, or in a set.
// The elements are in row-major order.
type part struct {
	tensor reshard.Tensor
	box    reshard.Box
	memory []byte
	has    Commit // of registered parts: what is in the memory already; zero = anything
	live   bool   // of registered parts, see SetLive
	away   bool   // of live parts: the program uses other memory
}

func (p part) bytes() int { return p.box.Elements() * p.tensor.Width }

// set is what this member has of one member's parts, as of a commit.
type set struct {
	commit  Commit
	own     bool // of the parts that this member itself has registered
	parts   []part
	data    []byte // the memory of all parts, in their order
	offsets []int  // of the parts, in data
	pins    int    // who reads it while the program goes on, see Pin
	filled  bool   // it has arrived; of sets that another member sends
	// Of a set whose live parts are copied later: here is closed when those are that are not away,
	// and ready when all are, which the program must have brought.
	here, ready, brought chan struct{}
	failed               bool // it will never be filled
}

// newSet returns a set with these parts, whose content is undefined.
func newSet(c Commit, parts []part, memory *pages.Pool) *set {
	s := &set{commit: c, parts: slices.Clone(parts)}
	s.data = memory.Get(size(parts))
	at := 0
	for i := range s.parts {
		s.offsets = append(s.offsets, at)
		n := s.parts[i].bytes()
		s.parts[i].memory = s.data[at : at+n : at+n]
		at += n
	}
	return s
}

// ranges are where a set of all that this member has registered has parts of it, in their order.
// What is contiguous is one range.
func (s *State) ranges(own *set, parts []part) (ranges [][]byte) {
	begin, end := 0, -1 // of the last range, in the memory of the set
	for _, p := range parts {
		for _, i := range s.named[p.tensor.Name] {
			q := own.parts[i]
			if common, ok := q.box.Intersect(p.box); !ok || !common.Equal(p.box) {
				continue
			}
			reshard.Runs(p.box, q.box, p.box, p.tensor.Width, func(r reshard.Run) {
				from := own.offsets[i] + r.At
				if from == end {
					ranges = ranges[:len(ranges)-1]
				} else {
					begin = from
				}
				end = from + r.Bytes
				ranges = append(ranges, own.data[begin:end])
			})
			break
		}
	}
	return ranges
}

func size(parts []part) (n int) {
	for _, p := range parts {
		n += p.bytes()
	}
	return n
}

// table numbers tensors by their names. All members that know the same tensors have the same
// numbers.
type table struct {
	tensors []reshard.Tensor
	number  map[string]int
}

// newTable unites the tensors of all members, which must agree on each.
func newTable(all [][]reshard.Tensor) (*table, error) {
	t := &table{number: map[string]int{}}
	from := map[string]int{}
	for rank, list := range all {
		for _, x := range list {
			if i, ok := t.number[x.Name]; ok {
				if o := t.tensors[i]; !o.Equal(x) {
					return nil, fmt.Errorf("tensor %s is %s %v on rank %d, and %s %v on rank %d: all ranks must give it the same global shape",
						x.Name, o.Type, o.Shape, from[x.Name], x.Type, x.Shape, rank)
				}
				continue
			}
			t.number[x.Name], from[x.Name] = len(t.tensors), rank
			t.tensors = append(t.tensors, x)
		}
	}
	slices.SortFunc(t.tensors, func(a, b reshard.Tensor) int { return cmp.Compare(a.Name, b.Name) })
	for i, x := range t.tensors {
		t.number[x.Name] = i
	}
	return t, nil
}

// pieces are parts in the words of a plan.
func (t *table) pieces(parts []part) []reshard.Piece {
	list := make([]reshard.Piece, 0, len(parts))
	for _, p := range parts {
		if p.bytes() > 0 {
			list = append(list, reshard.Piece{Tensor: t.number[p.tensor.Name], Box: p.box})
		}
	}
	return list
}

// translate returns pieces of other tensors of the same names as those of the table.
func (t *table) translate(tensors []reshard.Tensor, pieces []reshard.Piece) []reshard.Piece {
	list := make([]reshard.Piece, len(pieces))
	for i, p := range pieces {
		list[i] = reshard.Piece{Tensor: t.number[tensors[p.Tensor].Name], Box: p.Box}
	}
	return list
}

// parts is the inverse of pieces, without memory.
func (t *table) parts(pieces []reshard.Piece) []part {
	list := make([]part, len(pieces))
	for i, p := range pieces {
		list[i] = part{tensor: t.tensors[p.Tensor], box: p.Box}
	}
	return list
}
