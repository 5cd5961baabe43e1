package shards

import (
	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/reshard"
)

// share is what this member writes to disk of each commit of a generation.
type share struct {
	parts []part // no others write them
	bytes int64  // of the files of all members of its node
}

// newShare deals to the members what they have, once.
func newShare(t *table, n needs, rank int) share {
	once := reshard.Once(t.tensors, n.pieces)
	for i, x := range t.tensors {
		if x.Bytes() == 0 { // so that readers of the files find it
			once[0] = append(once[0], reshard.Piece{Tensor: i, Box: reshard.Whole(x.Shape)})
		}
	}
	x := share{parts: t.parts(once[rank])}
	for member, pieces := range once {
		if n.nodes[member] == n.nodes[rank] {
			x.bytes += checkpoint.PartsBytes(onDisk(t.parts(pieces)))
		}
	}
	return x
}

func onDisk(parts []part) []checkpoint.Part {
	list := make([]checkpoint.Part, len(parts))
	for i, p := range parts {
		list[i] = checkpoint.Part{Tensor: p.tensor, Box: p.box, Memory: p.memory}
	}
	return list
}

// Pinned is what this member writes to disk of a commit. It does not change until Unpin.
type Pinned struct {
	Bytes   int64 // of the files of all members of its node, and not less
	Tensors []reshard.Tensor

	set   *set
	parts []part
}

// Pin keeps the last commit until Unpin, so that it can be written while others are made. It is nil
// if there is none in this generation.
func (s *State) Pin() *Pinned {
	own := s.own()
	if own == nil {
		return nil
	}
	own.pins++
	return &Pinned{Bytes: s.share.bytes, Tensors: s.known, set: own, parts: s.share.parts}
}

// Unpin gives the memory of a pinned commit back.
func (s *State) Unpin(p *Pinned) {
	p.set.pins--
	for _, x := range s.sets {
		if x == p.set {
			return
		}
	}
	if p.set.pins == 0 {
		s.memory.Put(p.set.data)
	}
}

// Parts are what this member writes. Any goroutine may call it.
func (p *Pinned) Parts() ([]checkpoint.Part, error) {
	if err := p.set.await(); err != nil {
		return nil, err
	}
	from := map[string][]part{}
	for _, x := range p.set.parts {
		from[x.tensor.Name] = append(from[x.tensor.Name], x)
	}
	list := onDisk(p.parts)
	for k, x := range p.parts {
		if x.bytes() == 0 {
			continue
		}
		var scratch []byte
		var err error
		if list[k].Memory, err = packed(from[x.tensor.Name], x.box, &scratch); err != nil {
			return nil, err
		}
	}
	return list, nil
}
