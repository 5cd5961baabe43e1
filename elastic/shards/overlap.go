package shards

import (
	"bytes"
	"sync/atomic"
)

// Live parts change only between a call of Copied and the next Save, like weights and what an
// optimizer keeps of them. Save can leave them to a goroutine, which copies them while the program
// goes on:
//
//	Save ──► forward, backward ──► Copied ──► optimizer's step ──► Settle, Save
//	  └── live parts are copied ──┘│
//	      and then sent ───────────┴──────────────────────────────────┘

// SetLive makes the parts of a tensor that are registered live. ok is false if there is none.
func (s *State) SetLive(name string) (ok bool) {
	for _, i := range s.named[name] {
		s.parts[i].live, ok = true, true
	}
	return ok
}

// Copied waits until nothing of the last commit is copied any more.
func (s *State) Copied() {
	if own := s.own(); own != nil {
		own.await()
	}
}

// own is this member's set of the last commit of the generation; nil = there is none.
func (s *State) own() *set {
	for _, x := range s.sets {
		if x.own && x.commit == s.last {
			return x
		}
	}
	return nil
}

// await waits until the set is filled, if that is this member's own.
func (x *set) await() {
	if x.ready != nil {
		<-x.ready
	}
}

// fill copies what is in the memory to a set of all parts. With overlap a goroutine copies those
// that are live.
func (s *State) fill(own *set, overlap bool) {
	var to, from, laterTo, later []part
	for i, p := range s.parts {
		if overlap && p.live {
			laterTo, later = append(laterTo, own.parts[i]), append(later, p)
		} else {
			to, from = append(to, own.parts[i]), append(from, p)
		}
	}
	if len(later) > 0 {
		own.ready = make(chan struct{})
		go func() {
			defer close(own.ready)
			if s.copies != nil {
				s.copies()
			}
			for i, p := range later { // one thread: the others are the program's
				copy(laterTo[i].memory, p.memory)
			}
		}()
	}
	copyParts(to, from)
}

// Unlike reports whether live parts differ from what the last commit of the generation has: a
// program whose parts do has changed them without saying so.
func (s *State) Unlike() bool {
	own := s.own()
	if own == nil {
		return false
	}
	own.await()
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
func (s *State) Withdraw() { s.withdrawn = s.last }

// Withdrawn reports whether the last commit of the generation was withdrawn.
func (s *State) Withdrawn() bool { return s.last != (Commit{}) && s.withdrawn == s.last }
