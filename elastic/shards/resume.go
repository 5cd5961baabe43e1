package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/reshard"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// Disk is where a member looks for checkpoints.
type Disk struct {
	Dir *checkpoint.Dir
	// Skip passes over checkpoints that are of another program, that another user may have written,
	// or of which parts are gone. Else they are an error.
	Skip bool
	Log  *slog.Logger
}

// maxReaders is the number of parts that a member reads at a time.
const maxReaders = 8

// catalog is what a member can read.
type catalog struct {
	Sets     []checkpoint.Set            // of which it has what is not sharded
	Files    map[checkpoint.Set][]string // with parts
	Finished map[checkpoint.Set]bool
}

// description is what a member says of a checkpoint, so that all need not read all headers.
type description struct {
	Err     string
	Tensors []reshard.Tensor // of the state; from a member that has what is not sharded
	Files   []describedFile
}

type describedFile struct {
	Name        string
	Rank, World int
	Tensors     []reshard.Tensor
	Pieces      []reshard.Piece // of Tensors, in the order of the file
}

// Resume finds the newest checkpoint of which the members can read everything together, and reads
// it: each member a part, as if that were what it had of a commit of this generation, and all that
// can, what is not sharded. found is false if there is none. All members call it after Choose, when
// there is no commit that is whole; disk is nil if a member has no directory.
func (s *State) Resume(ctx context.Context, c Communicator, disk *Disk, replica *statesync.Replica) (from checkpoint.Name, chosen Commit, found bool, err error) {
	replica.IgnoreCheckpoints()
	mine, err := disk.catalog(replica)
	if err != nil {
		return from, chosen, false, err
	}
	all, err := gather(ctx, c, mine)
	if err != nil {
		return from, chosen, false, err
	}
	var lost error // the first of those that were whole once
	for _, set := range candidates(all) {
		r := &resuming{State: s, comm: c, disk: disk, set: set, all: all}
		x, err := r.read(ctx, replica)
		if err != nil {
			return from, chosen, false, err
		}
		if r.refused == "" {
			chosen = Commit{Generation: c.Generation(), Step: set.Name.Step}
			x.commit = chosen
			s.sets, s.offers = append(s.sets, x), r.offers(chosen)
			s.chosen = holding{r.table.tensors, has(r.table, s.offers, chosen), nil}
			if len(mine.Files[set]) > 0 { // it was whole if all could be read
				if err := disk.Dir.FinishParts(set); err != nil {
					disk.Log.Warn("a checkpoint is not marked as whole", "checkpoint", set, "err", err)
				}
			}
			return set.Name, chosen, true, replica.BeginWith(set.Name, r.meta)
		}
		if disk != nil {
			disk.Dir.Refuse(set.Name)
			disk.Log.Warn("skipping a checkpoint", "checkpoint", set, "err", r.refused)
		}
		if lost == nil && slices.ContainsFunc(all, func(o catalog) bool { return o.Finished[set] }) {
			lost = fmt.Errorf("%w: of checkpoint %v, and of those before it: %s: bring it back, or give another directory to begin anew", ErrNotWhole, set, r.refused)
		}
	}
	if disk != nil && !disk.Skip {
		err = lost
	}
	return from, chosen, false, err
}

// catalog lists what this member can read. A checkpoint of another program is an error, as in
// statesync.
func (d *Disk) catalog(replica *statesync.Replica) (c catalog, err error) {
	if d == nil {
		return c, nil
	}
	if c.Files, err = d.Dir.PartFiles(); err != nil {
		return c, err
	}
	c.Finished = map[checkpoint.Set]bool{}
	for set := range c.Files {
		c.Finished[set] = d.Dir.Finished(set)
	}
	names, err := d.Dir.List()
	for _, n := range names {
		header, err := d.Dir.Describe(n)
		if err == nil && header.Layout != replica.Layout().String() {
			err = fmt.Errorf("read checkpoint %v: %w: give another directory for this program's checkpoints", n, checkpoint.ErrOther)
		}
		switch {
		case err == nil:
			if set, ok := header.Set(); ok {
				c.Sets = append(c.Sets, set)
			}
		case !d.Skip && (errors.Is(err, checkpoint.ErrOther) || errors.Is(err, checkpoint.ErrUntrusted)):
			return c, err
		default:
			d.Log.Warn("skipping a checkpoint", "checkpoint", n, "err", err)
		}
	}
	return c, err
}

// candidates are the checkpoints of which some member has something, the newest first.
func candidates(all []catalog) []checkpoint.Set {
	seen := map[checkpoint.Set]bool{}
	for _, o := range all {
		for _, set := range o.Sets {
			seen[set] = true
		}
		for set := range o.Files {
			seen[set] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b checkpoint.Set) int {
		if n := b.Name.Compare(a.Name); n != 0 {
			return n
		}
		return cmp.Compare(b.ID, a.ID)
	})
}

// resuming is the reading of one checkpoint.
type resuming struct {
	*State

	comm    Communicator
	disk    *Disk
	set     checkpoint.Set
	all     []catalog // by rank
	table   *table
	shares  [][]sharedPiece // by rank: what each reads
	refused string          // why it is not used; all members know
	meta    []byte          // of what is not sharded; nil = this member has not read it
}

// sharedPiece is a part of a part in a file.
type sharedPiece struct {
	reshard.Piece // of the table

	file  string
	index int // of the part in it
}

// read reads this member's share of a checkpoint, unless it is refused.
func (r *resuming) read(ctx context.Context, replica *statesync.Replica) (*set, error) {
	all, err := gather(ctx, r.comm, r.describe())
	if err != nil {
		return nil, err
	}
	if err := r.deal(all); err != nil || r.refused != "" {
		return nil, err
	}
	x, failed := r.load()
	if failed == nil && slices.Contains(r.all[r.comm.Rank()].Sets, r.set) {
		r.meta, failed = replica.ReadCheckpoint(r.set.Name)
	}
	mine := ""
	if failed != nil {
		mine = failed.Error()
	}
	said, err := gather(ctx, r.comm, mine)
	if rank := slices.IndexFunc(said, func(text string) bool { return text != "" }); rank >= 0 {
		r.refused = fmt.Sprintf("rank %d: %s", rank, said[rank])
	}
	if err != nil || r.refused != "" {
		r.memory.Put(x.data)
		return nil, err
	}
	return x, nil
}

// first is the lowest rank that can read a file.
func (r *resuming) first(file string) int {
	return slices.IndexFunc(r.all, func(c catalog) bool { return slices.Contains(c.Files[r.set], file) })
}

// describe reads the headers for which this member is responsible.
func (r *resuming) describe() (d description) {
	rank := r.comm.Rank()
	fail := func(err error) description { return description{Err: err.Error()} }
	if has := func(c catalog) bool { return slices.Contains(c.Sets, r.set) }; slices.IndexFunc(r.all, has) == rank {
		h, err := r.disk.Dir.Describe(r.set.Name)
		if err != nil {
			return fail(err)
		}
		for _, t := range h.Sharded {
			d.Tensors = append(d.Tensors, reshard.Tensor(t))
		}
	}
	for _, name := range r.all[rank].Files[r.set] {
		if r.first(name) != rank {
			continue
		}
		f, err := r.disk.Dir.OpenPart(r.set, name)
		if err != nil {
			return fail(err)
		}
		o := describedFile{Name: name, Rank: f.Rank, World: f.World}
		for i, p := range f.Parts() {
			o.Tensors = append(o.Tensors, p.Tensor)
			o.Pieces = append(o.Pieces, reshard.Piece{Tensor: i, Box: p.Box})
		}
		if err := f.Close(); err != nil {
			return fail(err)
		}
		d.Files = append(d.Files, o)
	}
	return d
}

// deal settles who reads what, or why the checkpoint is refused.
func (r *resuming) deal(all []description) (err error) {
	if !slices.ContainsFunc(r.all, func(c catalog) bool { return slices.Contains(c.Sets, r.set) }) {
		r.refused = "nobody can read what is not sharded"
		return nil
	}
	tensors := make([][]reshard.Tensor, 0, len(all))
	for rank, d := range all {
		if d.Err != "" {
			r.refused = fmt.Sprintf("rank %d: %s", rank, d.Err)
			return nil
		}
		tensors = append(tensors, d.Tensors)
		for _, f := range d.Files {
			tensors = append(tensors, f.Tensors)
			if err := checkPieces(rank, f.Tensors, f.Pieces); err != nil {
				return err
			}
		}
	}
	if r.table, err = newTable(tensors); err != nil {
		return err
	}
	r.shares = make([][]sharedPiece, len(all))
	var has []reshard.Piece
	for _, d := range all {
		for _, f := range d.Files {
			readers := r.readers(f.Name)
			for i, p := range f.Pieces {
				tensor := r.table.number[f.Tensors[p.Tensor].Name]
				has = append(has, reshard.Piece{Tensor: tensor, Box: p.Box})
				for _, x := range reshard.Deal(p.Box, f.Rank, f.World, len(all)) {
					to := x.Member
					if !slices.Contains(readers, to) {
						to = readers[to%len(readers)]
					}
					piece := reshard.Piece{Tensor: tensor, Box: x.Box}
					r.shares[to] = append(r.shares[to], sharedPiece{piece, f.Name, i})
				}
			}
		}
	}
	if missing := reshard.Missing(r.table.tensors, [][]reshard.Piece{has}); len(missing) > 0 {
		r.refused = fmt.Sprintf("nobody can read %s%v, and %d bytes in all", r.table.tensors[missing[0].Tensor].Name, missing[0].Box, r.table.bytes(missing))
	}
	return nil
}

// readers are the ranks that can read a file.
func (r *resuming) readers(file string) (ranks []int) {
	for rank, c := range r.all {
		if slices.Contains(c.Files[r.set], file) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// load reads this member's share; what the set has is undefined if there is an error.
func (r *resuming) load() (*set, error) {
	mine := r.shares[r.comm.Rank()]
	pieces := make([]reshard.Piece, len(mine))
	for i, p := range mine {
		pieces[i] = p.Piece
	}
	x := newSet(Commit{}, r.table.parts(pieces), &r.memory)
	files := map[string]*checkpoint.PartFile{}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	var g errgroup.Group
	g.SetLimit(maxReaders)
	for i, p := range mine {
		f := files[p.file]
		if f == nil {
			var err error
			if f, err = r.disk.Dir.OpenPart(r.set, p.file); err != nil {
				return x, errors.Join(err, g.Wait())
			}
			files[p.file] = f
		}
		g.Go(func() error { return f.Read(p.index, onDisk(x.parts[i : i+1])[0]) })
	}
	return x, g.Wait()
}

// offers are what the members have when all have read their shares.
func (r *resuming) offers(c Commit) []offer {
	all := make([]offer, len(r.shares))
	for rank, mine := range r.shares {
		o := offeredSet{Commit: c}
		for _, p := range mine {
			o.Pieces = append(o.Pieces, p.Piece)
		}
		all[rank] = offer{Tensors: r.table.tensors, Sets: []offeredSet{o}}
	}
	return all
}
