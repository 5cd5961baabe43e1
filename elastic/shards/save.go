package shards

import (
	"context"
	"errors"
	"sync"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// copying is the sending of one commit to those who keep copies of it.
type copying struct {
	wait sync.WaitGroup

	sets []*set // what this member receives

	mu  sync.Mutex
	err error
}

func (k *copying) start(f func() error) {
	k.wait.Go(func() {
		if err := f(); err != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.err == nil {
				k.err = err
			}
		}
	})
}

// receive has f fill a set, which is kept if there is no error.
func (k *copying) receive(x *set, f func() error) {
	k.sets = append(k.sets, x)
	k.start(func() error {
		err := f()
		x.filled = err == nil // read after wait
		return err
	})
}

// Settle waits until what this member sends of the last commit is with those who keep copies, and
// what it keeps itself is here. All members call it before they agree on a commit, or on leaving:
// when they have agreed, the last commit is whole.
func (s *State) Settle() error {
	if own := s.own(); own != nil && own.await() != nil {
		s.Withdraw()
		err := errors.Join(errNotBrought, s.settle())
		s.drop(func(o Commit) bool { return o == s.last })
		return err
	}
	return s.settle()
}

func (s *State) settle() error {
	k := s.copying
	if k == nil {
		return nil
	}
	k.wait.Wait()
	s.copying = nil
	for _, x := range k.sets {
		if x.filled {
			s.sets = append(s.sets, x)
		} else {
			s.memory.Put(x.data)
		}
	}
	s.dropIncomplete()
	return k.err
}

// Parting is what members know of those who leave after a commit.
type Parting struct {
	Planned bool   // the next generation has other members
	Leaving []bool // by rank: whom it does not have; nil = nobody can say
}

// Save makes the registered memory, as it is now, this member's part of a commit. All members call
// it when they have agreed on the commit, after Settle, with the same parting. It copies this
// member's parts; they are sent to those who keep copies until the next Settle, and nothing else
// may use c's messages meanwhile. Before members leave, what they alone have is sent to those who
// stay, and nothing else: everybody waits for it, and copies are made in the next generation.
//
// With overlap live parts must not change until Copied has returned.
func (s *State) Save(ctx context.Context, c Communicator, commit Commit, parting Parting, overlap bool) {
	switch {
	case s.Withdrawn():
		s.drop(func(o Commit) bool { return o == s.last })
	case s.last != (Commit{}):
		s.whole, s.holds = s.last, s.settled
	default:
		s.holds = s.settled
	}
	s.last, s.settled = commit, s.planned
	s.drop(func(o Commit) bool { return o.Compare(s.whole) < 0 })
	defer s.memory.Trim() // what this commit does not use again the next one need not either
	peers := s.peers
	if parting.Planned {
		peers, s.settled = s.leaving, s.parting
	}
	own := newSet(commit, s.parts, &s.memory)
	own.own = true
	s.fill(own, overlap && !parting.Planned)
	s.filled = commit
	s.sets = append(s.sets, own)
	// One that was believed to stay may leave after all: with copies the commit before survives it.
	if parting.Leaving != nil && s.options != (Options{}) {
		moves := reshard.Handover(s.layout.tensors, s.registered, parting.Leaving, s.most)
		s.settled = s.repaired(s.layout, s.registered, moves)
		s.send(ctx, c, s.layout, commit, moves)
		return
	}
	if s.options.Parity > 0 && !parting.Planned {
		s.protect(ctx, c, s.group, commit, s.ranges(own, s.group.own()), own.await)
		return
	}
	k := &copying{}
	s.copying = k
	for owner, copies := range peers.copies {
		for _, x := range copies {
			switch c.Rank() {
			case owner:
				k.start(func() error {
					parts := s.layout.parts(x.Pieces)
					if err := own.await(); err != nil {
						return err
					}
					return sendRange(ctx, c, x.Holder, s.ranges(own, parts), 0, size(parts), s.most)
				})
			case x.Holder:
				kept := newSet(commit, s.layout.parts(x.Pieces), &s.memory)
				k.receive(kept, func() error { return recvCopy(ctx, c, owner, kept.data, s.most) })
			}
		}
	}
}

// Last is the last commit that was saved in this generation; zero = none.
func (s *State) Last() Commit { return s.last }

// Restore returns this member's parts to the last commit of the generation.
func (s *State) Restore() error {
	own := s.own()
	switch {
	case own == nil:
		return errors.New("the parts of the state have no commit in this generation yet to return to")
	case s.Withdrawn():
		return errors.New("parts of the state have changed while the last commit copied them: there is nothing to return to")
	}
	if err := own.await(); err != nil {
		return err
	}
	copyParts(s.parts, own.parts)
	s.filled = s.last
	return nil
}

// send sends pieces of a commit to members that keep them, until the next Settle.
func (s *State) send(ctx context.Context, c Communicator, t *table, commit Commit, moves []reshard.Move) {
	send, recv := map[int][]reshard.Piece{}, map[int][]reshard.Piece{}
	for _, m := range moves {
		switch c.Rank() {
		case m.Chain[0]:
			send[m.Chain[1]] = append(send[m.Chain[1]], m.Piece)
		case m.Chain[1]:
			recv[m.Chain[0]] = append(recv[m.Chain[0]], m.Piece)
		}
	}
	if len(send)+len(recv) == 0 {
		return
	}
	k := &copying{}
	s.copying = k
	x := s.newTransfer(c, t, commit, true)
	for to, pieces := range send {
		k.start(func() error {
			var scratch []byte
			for _, p := range pieces {
				if err := x.send(ctx, to, p, x.from, &scratch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from, pieces := range recv {
		kept := newSet(commit, t.parts(pieces), &s.memory)
		k.receive(kept, func() error {
			for _, p := range kept.parts {
				if err := recvHashed(ctx, c, from, p.memory); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// copyParts copies the memory of parts to others of the same sizes, on all cores.
func copyParts(to, from []part) {
	type chunk struct{ part, at int }
	var chunks []chunk
	for i, p := range from {
		for at := 0; at < len(p.memory); at += moveBytes {
			chunks = append(chunks, chunk{i, at})
		}
	}
	inParallel(len(chunks), func(k int) {
		i, at := chunks[k].part, chunks[k].at
		end := min(at+moveBytes, len(from[i].memory))
		copy(to[i].memory[at:end], from[i].memory[at:end])
	})
}

func recvCopy(ctx context.Context, c Communicator, from int, data []byte, most int) error {
	for at := 0; at < len(data); at += most {
		if err := recvHashed(ctx, c, from, data[at:min(at+most, len(data))]); err != nil {
			return err
		}
	}
	return nil
}
