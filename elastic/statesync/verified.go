package statesync

import "github.com/regroup-io/regroup/elastic/checkpoint"

// Verification keeps an older commit that is known to be right: a newer one may have the result of
// a processor that computes wrongly, which is found out later.
//
//	v.CopyNext()                   // in the step before
//	...
//	s.Commit(ctx)
//	v.Hold()
//	...                            // steps in which the members compare what they compute
//	if wrong == nil { v.Verify() } // no member computes wrongly, or did before that commit
//	else { v.Distrust() }          // and leave the generation: all go on from the verified commit
//
// All members call these at the same steps. Both commits are kept in memory. A member that has no
// verified commit, because it has come later, gives up what it has in the next sync, where another
// has one. Of a sharded state nothing is held.
type Verification struct{ r *Replica }

// Verification is that of the replica's commits.
func (r *Replica) Verification() *Verification { return &Verification{r} }

// CopyNext makes the next commit a copy, as Hold needs it, also a live one.
func (v *Verification) CopyNext() {
	v.r.copyNext = true
}

// Hold keeps the newest commit until it is known whether it is right, in place of the one that was
// held before. ok is false if there is no copy of it.
func (v *Verification) Hold() (ok bool) {
	return v.r.live == nil && v.r.store.hold()
}

// Verify makes the commit that is held the one to which Distrust returns, and marks checkpoints up
// to it. Without one it does nothing.
func (v *Verification) Verify() {
	s := v.r.store.verify()
	if d := v.r.checkpoints; s != nil && d != nil {
		if err := d.dir.MarkVerified(s.name()); err != nil {
			d.log.Warn("a checkpoint is not marked", "err", err)
		}
	}
}

// Distrust makes the verified commit the newest one, for all members in the next sync, and removes
// checkpoints of those after it. ok is false if there is none, and the newest commit stays what it
// is.
func (v *Verification) Distrust() (c Commit, ok bool) {
	r := v.r
	if r.newest == nil {
		return c, false
	}
	until := r.newest.name()
	s := r.store.distrust()
	if s == nil {
		return c, false
	}
	if d := r.checkpoints; d != nil {
		if err := d.dir.Distrust(s.name(), until); err != nil {
			d.log.Error("checkpoints with wrong results are left", "err", err)
		}
	}
	r.newest, r.live, r.hashed, r.unapplied = s, nil, false, true
	c.Generation, c.Step = r.store.Version(s)
	r.last, r.bound = c, c
	return c, true
}

// overBound returns the verified commit to which members return, and whether another has a newer
// one.
func overBound(all []inventory) (bound Commit, over bool) {
	for _, v := range all {
		if b := (Commit{v.Bound.Generation, v.Bound.Step}); b.Compare(bound) > 0 {
			bound = b
		}
	}
	if bound == (Commit{}) {
		return bound, false
	}
	for _, v := range all {
		over = over || v.Origin == fromCommit && (Commit{v.Name.Generation, v.Name.Step}).Compare(bound) > 0
	}
	return bound, over
}

// name is that of a checkpoint of the commit, but for its run.
func (s *Snapshot) name() checkpoint.Name {
	return checkpoint.Name{Generation: s.generation, Step: s.step}
}

func (c *CommitStore) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.newest
	if s == nil || s.tentative || c.two {
		return false
	}
	before := c.held
	c.held = s
	c.drop(before)
	return true
}

// verify returns the commit that is verified now; nil = none was held.
func (c *CommitStore) verify() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	before := c.verified
	c.verified, c.held = c.held, nil
	c.drop(before)
	return c.verified
}

// distrust returns the verified commit, which is the newest then; nil = there is none.
func (c *CommitStore) distrust() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.verified
	if s == nil {
		return nil
	}
	given := map[*Snapshot]bool{c.newest: true, c.previous: true, c.held: true}
	c.newest, c.previous, c.held = s, nil, nil
	for old := range given {
		c.drop(old)
	}
	c.notify()
	return s
}

// drop frees a commit unless it is kept for another reason.
func (c *CommitStore) drop(s *Snapshot) {
	if s != nil && s != c.newest && s != c.previous {
		c.release(s)
	}
}
