package statesync

import (
	"cmp"
	"crypto/sha256"
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
// state.
type inventory struct {
	origin    origin
	name      checkpoint.Name // its Run is 0 for a commit
	metaBytes uint64
	digest    Digest // zero for a checkpoint that was not read
	layout    Digest
}

const inventoryBytes = 1 + 4*8 + 2*sha256.Size

func (v inventory) encode() []byte {
	b := make([]byte, 0, inventoryBytes)
	b = append(b, byte(v.origin))
	for _, n := range []uint64{v.name.Run, v.name.Generation, v.name.Step, v.metaBytes} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, v.digest[:]...)
	return append(b, v.layout[:]...)
}

func decodeInventory(b []byte) (v inventory, err error) {
	if len(b) != inventoryBytes || b[0] > byte(fromCommit) {
		return inventory{}, fmt.Errorf("sync: an inventory of %d bytes: do all workers run the same version?", len(b))
	}
	v.origin = origin(b[0])
	for i, to := range []*uint64{&v.name.Run, &v.name.Generation, &v.name.Step, &v.metaBytes} {
		*to = binary.LittleEndian.Uint64(b[1+8*i:])
	}
	b = b[1+4*8:]
	copy(v.digest[:], b)
	copy(v.layout[:], b[sha256.Size:])
	return v, nil
}

// newer orders inventories: commits before checkpoints before initial states, commits and
// checkpoints by their names, then the lowest digest, so that all members choose the same one
// whatever the cause of a difference.
func newer(a, b inventory) bool {
	if (a.origin == fromCommit) != (b.origin == fromCommit) {
		return a.origin == fromCommit
	}
	if a.origin == fromProgram || b.origin == fromProgram {
		return a.origin > b.origin // between two initial states the lower rank wins
	}
	return cmp.Or(b.name.Compare(a.name), cmp.Compare(b.origin, a.origin), a.digest.compare(b.digest)) < 0
}

// choose returns the first rank with the newest state, and the ranks that have it and that lack it.
func choose(all []inventory) (best int, holders, lacking []int, err error) {
	for r := range all {
		if all[r].layout != all[0].layout {
			return 0, nil, nil, fmt.Errorf("sync: the states of rank 0 and rank %d differ in tensors, values or data set", r)
		}
		if newer(all[r], all[best]) {
			best = r
		}
	}
	for r, v := range all {
		if v.digest == all[best].digest && v.metaBytes == all[best].metaBytes {
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
	log     *slog.Logger
	untried []checkpoint.Name // the newest first
	loaded  *checkpoint.Name  // the one in the newest snapshot; nil = that is an initial state
}

// inventory returns what this member brings to a sync.
func (r *Replica) inventory() inventory {
	v := inventory{metaBytes: uint64(len(r.newest.meta)), digest: r.digest(), layout: r.config.Layout()}
	switch d := r.checkpoints; {
	case !r.newest.tentative:
		v.origin, v.name.Generation, v.name.Step = fromCommit, r.newest.generation, r.newest.step
	case d != nil && d.loaded != nil:
		v.origin, v.name = fromCheckpoint, *d.loaded
	case d != nil && len(d.untried) > 0:
		v.origin, v.name, v.digest = fromDisk, d.untried[0], Digest{}
	}
	return v
}

// load reads the newest checkpoint that was not tried. A damaged one is skipped: the next inventory
// names the one before it. A checkpoint of another program is an error, because a user who gives
// the wrong directory does not want to train anew in it.
func (r *Replica) load() error {
	d := r.checkpoints
	n := d.untried[0]
	d.untried = d.untried[1:]
	s := r.buffer()
	meta, err := d.dir.Read(n, r.config.Layout().String(), s.data)
	switch {
	case errors.Is(err, checkpoint.ErrOther):
		return fmt.Errorf("%w: give another directory for this program's checkpoints", err)
	case err != nil:
		d.log.Warn("skipping a checkpoint", "checkpoint", n, "err", err)
		return nil
	}
	resumed, step, err := r.config.Resume(n, meta)
	if err != nil {
		return fmt.Errorf("checkpoint %v: %w", n, err)
	}
	s.reset()
	s.meta, s.generation, s.step, s.tentative = resumed, 0, step, true
	r.adopt(s)
	d.loaded = &n
	return nil
}
