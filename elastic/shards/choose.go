package shards

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// ErrNotWhole says that no commit is left of which the members have everything: more members were
// lost than copies or parity make up for.
var ErrNotWhole = errors.New("parts of the sharded state are lost")

// offer is what a member has, as it tells the others.
type offer struct {
	Commits []Commit // of which it has what is not sharded
	// Withdrawn is a commit that is not one any more, see State.Withdraw; zero = none.
	Withdrawn Commit
	Tensors   []reshard.Tensor
	Sets      []offeredSet
	Parity    []offeredParity
}

type offeredSet struct {
	Commit Commit
	Pieces []reshard.Piece // of Tensors
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

// gather exchanges a value of each member.
func gather[T any](ctx context.Context, c Communicator, mine T) ([]T, error) {
	b, err := encode(mine)
	if err != nil {
		return nil, err
	}
	blobs, err := c.AllgatherBlobs(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(blobs))
	for rank := range blobs {
		if err := gob.NewDecoder(bytes.NewReader(blobs[rank])).Decode(&all[rank]); err != nil {
			return nil, fmt.Errorf("what rank %d says of its state: %w: do all workers run the same version?", rank, err)
		}
	}
	return all, nil
}

// checkPieces reports pieces that are not of these tensors.
func checkPieces(rank int, tensors []reshard.Tensor, pieces []reshard.Piece) error {
	for _, p := range pieces {
		if p.Tensor < 0 || p.Tensor >= len(tensors) || !p.Box.Within(tensors[p.Tensor].Shape) {
			return errDamaged(rank)
		}
	}
	return nil
}

func errDamaged(rank int) error {
	return fmt.Errorf("what rank %d says of its state is damaged: do all workers run the same version?", rank)
}

// offer describes what this member has.
func (s *State) offer(commits []Commit) offer {
	o := offer{Commits: commits, Withdrawn: s.withdrawn, Tensors: slices.Clone(s.known)}
	for _, x := range s.sets {
		o.add(x.commit, x.parts)
	}
	for _, p := range s.protections {
		o.Parity = append(o.Parity, offeredParity{
			Commit: p.commit, Generation: p.generation, Ranks: p.ranks, At: p.at, Kept: p.kept,
			Pieces: o.number(p.table.parts(p.pieces[p.at])),
		})
	}
	return o
}

// add adds parts of a commit.
func (o *offer) add(commit Commit, parts []part) {
	o.Sets = append(o.Sets, offeredSet{Commit: commit, Pieces: o.number(parts)})
}

// number returns parts as pieces of o.Tensors.
func (o *offer) number(parts []part) []reshard.Piece {
	number := map[string]int{}
	for i, t := range o.Tensors {
		number[t.Name] = i
	}
	pieces := make([]reshard.Piece, len(parts))
	for k, p := range parts {
		i, known := number[p.tensor.Name]
		if !known {
			i = len(o.Tensors)
			number[p.tensor.Name] = i
			o.Tensors = append(o.Tensors, p.tensor)
		}
		pieces[k] = reshard.Piece{Tensor: i, Box: p.box}
	}
	return pieces
}

// Choose begins a generation: what was registered is forgotten, and all members choose the newest
// commit of which a member has what is not sharded, and all together have what is, or can rebuild
// it from parity, which they do. commits are
// those of which this member has what is not sharded. found is false if nobody has a commit. The
// error is ErrNotWhole if there are commits, and none is whole.
func (s *State) Choose(ctx context.Context, c Communicator, commits []Commit) (chosen Commit, found bool, err error) {
	s.former = map[string][]part{}
	for _, p := range s.parts {
		s.former[p.tensor.Name] = append(s.former[p.tensor.Name], p)
	}
	s.parts, s.named, s.offers, s.received = nil, map[string][]int{}, nil, 0
	offers, err := gather(ctx, c, s.offer(commits))
	if err != nil {
		return chosen, false, err
	}
	var candidates []Commit
	tensors := make([][]reshard.Tensor, len(offers))
	for rank, o := range offers {
		candidates = append(candidates, o.Commits...)
		tensors[rank] = o.Tensors
		for _, set := range o.Sets {
			if err := checkPieces(rank, o.Tensors, set.Pieces); err != nil {
				return chosen, false, err
			}
		}
	}
	t, err := newTable(tensors)
	if err != nil {
		return chosen, false, err
	}
	groups, err := s.gatherGroups(ctx, c, offers, t)
	if err != nil {
		return chosen, false, err
	}
	slices.SortFunc(candidates, func(a, b Commit) int { return b.Compare(a) })
	candidates = slices.Compact(candidates)
	var notWhole error
	for _, o := range offers {
		if x := o.Withdrawn; x != (Commit{}) && slices.Contains(candidates, x) {
			s.withdrawn = x
			s.drop(func(o Commit) bool { return o == x })
			candidates = slices.DeleteFunc(candidates, func(o Commit) bool { return o == x })
			notWhole = fmt.Errorf("%w: of the commit of %v some have changed while they were copied", ErrNotWhole, x)
		}
	}
	least := math.MaxInt
	for _, candidate := range candidates {
		if !slices.ContainsFunc(offers, func(o offer) bool { return o.has(candidate) }) {
			// Of an initial state nobody may have filled the parts yet. After a step all had some,
			// and members that came in since have none before the next commit.
			if candidate.Step > 0 && notWhole == nil {
				notWhole = fmt.Errorf("%w: nobody has any of the commit of %v", ErrNotWhole, candidate)
			}
			continue
		}
		rebuilt, available := planRebuild(t, groups[candidate], has(t, offers, candidate))
		missing := reshard.Missing(t.tensors, available)
		if len(missing) == 0 {
			s.chosen = holding{t.tensors, available, groups[candidate].plain()}
			s.offers = offers
			err := s.rebuild(ctx, c, t, candidate, rebuilt)
			return candidate, err == nil, err
		}
		// The commit that lacks the least was whole: of newer ones not all had arrived.
		if lost := t.bytes(missing); lost < least {
			least = lost
			notWhole = fmt.Errorf("%w: of the commit of %v nobody has %s%v, and %d bytes in all",
				ErrNotWhole, candidate, t.tensors[missing[0].Tensor].Name, missing[0].Box, lost)
		}
	}
	if notWhole == nil {
		s.offers = offers
	}
	return chosen, false, notWhole
}

// has reports whether the member has parts of a commit, or parity.
func (o offer) has(c Commit) bool {
	return slices.ContainsFunc(o.Sets, func(x offeredSet) bool { return x.Commit == c }) ||
		slices.ContainsFunc(o.Parity, func(x offeredParity) bool { return x.Commit == c })
}

// has is what the members have of a commit, by rank.
func has(t *table, offers []offer, c Commit) [][]reshard.Piece {
	all := make([][]reshard.Piece, len(offers))
	for rank, o := range offers {
		for _, set := range o.Sets {
			if set.Commit != c {
				continue
			}
			all[rank] = append(all[rank], t.translate(o.Tensors, set.Pieces)...)
		}
	}
	return all
}

func (t *table) bytes(pieces []reshard.Piece) (n int) {
	for _, p := range pieces {
		n += p.Box.Elements() * t.tensors[p.Tensor].Width
	}
	return n
}
