package shards

import (
	"bytes"
	"errors"
	"sync/atomic"
)

// Live parts change only between a call of Copied and the next Save, like weights and what an
// optimizer keeps of them. Save can leave them to a goroutine, which copies them while the program
// goes on:
//
//	Save ──► forward, backward ──► Copied ──► optimizer's step ──► Settle, Save
//	  └── live parts are copied ──┘│
//	      and then sent ───────────┴──────────────────────────────────┘
//
// What follows does nothing for a nil State, of a program whose state is not sharded.
//
// Parts that are away are in other memory while the program uses them, like that of a GPU. What
// brings them to the registered memory may go on after Save, until Brought, and Copied does not
// wait for it: Settle and Leave do.

// SetLive makes the parts of a tensor that are registered live, and away or not. ok is false if
// there is none.
func (s *State) SetLive(name string, away bool) (ok bool) {
	for _, i := range s.named[name] {
		s.parts[i].live, s.parts[i].away, ok = true, away, true
	}
	return ok
}

// Copied waits until live parts may change: what is in use is not copied any more.
func (s *State) Copied() {
	if own := s.own(); own != nil && own.ready != nil {
		<-own.here
	}
}

// errNotBrought says that the program could not copy parts that are away to the registered memory.
var errNotBrought = errors.New("parts of the state could not be brought to the memory that is registered")

// Brought says that the registered memory has the parts that are away as of the last commit, and
// waits until they are copied from there; or that it never will, which Settle withdraws the commit
// for, and returns as an error. Any goroutine may call it.
func (s *State) Brought(ok bool) {
	if s == nil {
		return
	}
	if own := s.bringing.Swap(nil); own != nil {
		own.failed = !ok
		close(own.brought)
		<-own.ready
	}
}

// own is this member's set of the last commit of the generation; nil = there is none, or no state.
func (s *State) own() *set {
	if s == nil {
		return nil
	}
	for _, x := range s.sets {
		if x.own && x.commit == s.last {
			return x
		}
	}
	return nil
}

// await waits until the set is filled, if that is this member's own.
func (x *set) await() error {
	if x.ready != nil {
		<-x.ready
	}
	if x.failed {
		return errNotBrought
	}
	return nil
}

// fill copies what is in the memory to a set of all parts. With overlap a goroutine copies those
// that are live.
func (s *State) fill(own *set, overlap bool) {
	var to, from []part
	var here, away []int // live parts
	for i, p := range s.parts {
		switch {
		case overlap && p.live && p.away:
			away = append(away, i)
		case overlap && p.live:
			here = append(here, i)
		default:
			to, from = append(to, own.parts[i]), append(from, p)
		}
	}
	if overlap {
		parts := s.parts
		own.here, own.ready, own.brought = make(chan struct{}), make(chan struct{}), make(chan struct{})
		if len(away) > 0 {
			s.bringing.Store(own)
		}
		go func() {
			defer close(own.ready)
			if s.copies != nil {
				s.copies()
			}
			own.take(parts, here)
			close(own.here)
			if len(away) > 0 {
				<-own.brought
			}
			own.take(parts, away)
		}()
	}
	copyParts(to, from)
}

// take copies some of the parts to the set, by one thread: the others are the program's.
func (x *set) take(parts []part, which []int) {
	for _, i := range which {
		copy(x.parts[i].memory, parts[i].memory)
	}
}

// Unlike reports whether live parts differ from what the last commit of the generation has: a
// program whose parts do has changed them without saying so.
func (s *State) Unlike() bool {
	own := s.own()
	if own == nil {
		return false
	}
	if own.await() != nil {
		return true
	}
	var differ atomic.Bool
	inParallel(len(s.parts), func(i int) {
		if p := s.parts[i]; p.live && !differ.Load() && !bytes.Equal(p.memory, own.parts[i].memory) {
			differ.Store(true)
		}
	})
	return differ.Load()
}

// Withdraw gives up the last commit of the generation, because live parts may have changed while
// they were copied. The members tell each other when they agree on the next commit, after which all
// have withdrawn it, or in Choose. The commit before it is kept until then.
func (s *State) Withdraw() {
	if s != nil {
		s.withdrawn = s.last
	}
}

// Withdrawn reports whether the last commit of the generation was withdrawn.
func (s *State) Withdrawn() bool { return s.last != (Commit{}) && s.withdrawn == s.last }
