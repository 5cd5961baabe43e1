package statesync

import "time"

// A live commit copies nothing of the tensors that are marked as live: they are the commit, until
// they change.
//
//	CommitLive(7) ──► forward, backward ──► Changed ──► optimizer's step ──► CommitLive(8)
//	└── the tensors are commit 7 ────────┘ └── there is only the last copy ┘ └── they are commit 8
//
// When the tensors are needed as a commit (Restore, Sync) they are copied, which takes as long as
// the restoring of a copy would.
type liveCommit struct {
	meta             []byte
	generation, step uint64
	made             time.Time
}

// copyShare is the part of its time that a program spends with copies that are made in case that
// live tensors cannot be used: a 400th.
const copyShare = 400

// SetLive marks a tensor as one that changes only between Changed and the next commit. ok is false
// if there is none of this name.
func (r *Replica) SetLive(name string) (ok bool) {
	for i := range r.Tensors.list {
		if t := &r.Tensors.list[i]; t.Name == name {
			t.live, ok = true, true
		}
	}
	return ok
}

// CommitLive is Commit without a copy of the live tensors.
func (r *Replica) CommitLive(meta []byte, generation, step uint64) {
	if r.rest == nil {
		r.rest = make([]byte, 0, r.Tensors.size-r.Tensors.liveBytes())
	}
	r.rest = r.rest[:0]
	for _, t := range r.Tensors.list {
		if !t.live {
			r.rest = append(r.rest, t.Memory...)
		}
	}
	r.live, r.last = &liveCommit{meta, generation, step, time.Now()}, Commit{generation, step}
}

// Changed says that live tensors have changed or are about to. If the last commit was a live one,
// the newest is now the last that was copied.
func (r *Replica) Changed() { r.live = nil }

// Live reports whether the newest commit is a live one.
func (r *Replica) Live() bool { return r.live != nil }

// CopyDue reports whether it is time for a commit that copies all tensors.
func (r *Replica) CopyDue() bool { return r.copyNext || time.Since(r.copied) >= copyShare*r.copyTook }

// Matches reports whether the live tensors are those of the newest commit, which was not a live
// one: a program whose tensors are not has changed them without saying so. It costs one pass over
// them.
func (r *Replica) Matches() bool { return r.newest != nil && r.Tensors.equalLive(r.newest.data) }

// Last names the last commit that was made or received; zero = none.
func (r *Replica) Last() Commit { return r.last }

// takeLive copies the tensors of a live commit, if the newest one is that. Those that are not live
// return to it.
func (r *Replica) takeLive() {
	c := r.live
	if c == nil {
		return
	}
	rest := r.rest
	for _, t := range r.Tensors.list {
		if !t.live {
			rest = rest[copy(t.Memory, rest):]
		}
	}
	r.record(c.meta, c.generation, c.step, false)
	r.newest.made = c.made
}
