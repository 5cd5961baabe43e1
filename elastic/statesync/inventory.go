package statesync

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// origin tells where the state in an inventory comes from.
type origin byte

const (
	fromProgram    origin = iota // the initial state
	fromDisk                     // a checkpoint that this member can read
	fromCheckpoint               // a checkpoint that this member has read
	fromCommit
)

// inventory is what a member brings to a sync: its commit, else a checkpoint, else its initial
// state. All fields have a fixed size, so it is sent as binary data of a known length.
type inventory struct {
	Origin    origin
	Name      checkpoint.Name // its Run, a count of continuations, is 0 for a commit
	Bound     Commit          // commits that are newer do not count, see Distrust; zero = all count
	MetaBytes uint64          // size of everything that is not a tensor
	Digest    Digest          // zero for a checkpoint that was not read
	Layout    Digest
}

var inventoryBytes = binary.Size(inventory{})

func (v inventory) encode() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, v) // cannot fail: the size is fixed
	return b
}

func decodeInventory(b []byte) (v inventory, err error) {
	if len(b) != inventoryBytes || b[0] > byte(fromCommit) {
		return inventory{}, fmt.Errorf("sync: malformed inventory of %d bytes: do all workers run the same version?", len(b))
	}
	_, err = binary.Decode(b, binary.LittleEndian, &v)
	return v, err
}

// newer orders inventories: commits before checkpoints before initial states, commits and
// checkpoints by their names, then the lowest digest, so that all members choose the same one
// whatever the cause of a difference. Initial states are equal: that of the lowest rank counts.
func newer(a, b inventory) bool {
	if (a.Origin == fromCommit) != (b.Origin == fromCommit) {
		return a.Origin == fromCommit
	}
	if a.Origin == fromProgram || b.Origin == fromProgram {
		return a.Origin > b.Origin // between two initial states the lower rank wins
	}
	return cmp.Or(b.Name.Compare(a.Name), cmp.Compare(b.Origin, a.Origin), a.Digest.compare(b.Digest)) < 0
}

// choose returns the first rank with the newest state, and the ranks that have it and that lack it.
func choose(all []inventory) (best int, holders, lacking []int, err error) {
	for r := range all {
		if all[r].Layout != all[0].Layout {
			return 0, nil, nil, fmt.Errorf("sync: the states of rank 0 and rank %d differ in tensors, values or data set", r)
		}
		if newer(all[r], all[best]) {
			best = r
		}
	}
	for r, v := range all {
		if v.Digest == all[best].Digest && v.MetaBytes == all[best].MetaBytes {
			holders = append(holders, r)
		} else {
			lacking = append(lacking, r)
		}
	}
	return best, holders, lacking, nil
}

// checkpoints is where the state comes from if no member has a commit.
type checkpoints struct {
	dir     *checkpoint.Dir
	skip    bool // all that cannot be used, and not only damaged ones
	log     *slog.Logger
	untried []checkpoint.Name // the newest first
	loaded  *checkpoint.Name  // the one that the newest snapshot was read from; nil = from none
}

// inventory returns what this member brings to a sync.
func (r *Replica) inventory() inventory {
	v := inventory{MetaBytes: uint64(len(r.newest.meta)), Bound: r.bound, Digest: r.digest(), Layout: r.config.Layout()}
	switch d := r.checkpoints; {
	case !r.newest.tentative:
		v.Origin, v.Name.Generation, v.Name.Step = fromCommit, r.newest.generation, r.newest.step
	case d != nil && d.loaded != nil:
		v.Origin, v.Name = fromCheckpoint, *d.loaded
	case d != nil && len(d.untried) > 0:
		v.Origin, v.Name, v.Digest = fromDisk, d.untried[0], Digest{}
	}
	return v
}

// load reads the newest checkpoint that was not tried. A damaged one is skipped: the next inventory
// names the one before it. A checkpoint of another program is an error, because a user who gives
// the wrong directory does not want to train anew in it, and so is one that another user may have
// written; but not where nobody has given a directory.
func (r *Replica) load() error {
	d := r.checkpoints
	n := d.untried[0]
	d.untried = d.untried[1:]
	s := r.buffer()
	meta, err := d.dir.Read(n, r.config.Layout().String(), s.data)
	switch {
	case err != nil && d.skip:
		d.log.Warn("skipping a checkpoint", "checkpoint", n, "err", err)
		return nil
	case errors.Is(err, checkpoint.ErrOther):
		return fmt.Errorf("%w: give another directory for this program's checkpoints", err)
	case errors.Is(err, checkpoint.ErrUntrusted):
		return err
	case err != nil:
		d.log.Warn("skipping a checkpoint", "checkpoint", n, "err", err)
		return nil
	}
	return r.adoptCheckpoint(n, s, meta)
}

// adoptCheckpoint makes a checkpoint that was read into s what this member begins with.
func (r *Replica) adoptCheckpoint(n checkpoint.Name, s *Snapshot, meta []byte) error {
	resumed, step, err := r.config.Resume(n, meta)
	if err != nil {
		return fmt.Errorf("checkpoint %v: %w", n, err)
	}
	s.reset()
	s.meta, s.generation, s.step, s.tentative = resumed, 0, step, true
	r.adopt(s)
	r.checkpoints.loaded = &n
	return nil
}

// IgnoreCheckpoints leaves it to the caller with which checkpoint the members begin.
func (r *Replica) IgnoreCheckpoints() {
	if r.checkpoints != nil {
		r.checkpoints.untried, r.checkpoints.loaded = nil, nil
	}
}

// ReadCheckpoint reads a checkpoint, and changes nothing. The replica must have a directory of
// checkpoints.
func (r *Replica) ReadCheckpoint(n checkpoint.Name) (meta []byte, err error) {
	return r.checkpoints.dir.Read(n, r.config.Layout().String(), r.buffer().data)
}

// BeginWith makes the checkpoint that was read last what this member begins with, in place of the
// commits that it has. meta is nil on members that have not read it: the sync brings it to them.
func (r *Replica) BeginWith(n checkpoint.Name, meta []byte) error {
	r.ReturnTo(Commit{})
	if meta == nil {
		return nil
	}
	r.unapplied = true
	return r.adoptCheckpoint(n, r.buffer(), meta)
}

// Layout is the hash of what is registered.
func (r *Replica) Layout() Digest { return r.config.Layout() }
