package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// ErrElsewhere says that a checkpoint has parts that are not in this directory: those of other
// nodes, where each node has a directory of its own, or of a set that was not finished.
var ErrElsewhere = errors.New("parts of the checkpoint are not here")

// Info is what a directory has of a checkpoint.
type Info struct {
	Header

	Written time.Time // when its file was written
	Bytes   int64     // on the disk, with its parts
	Files   int       // with parts
	// Verified says that its ranks have found since that none of them had computed wrongly before.
	Verified bool
}

// Stat describes a checkpoint by the rules of Describe. Where that is an error, it returns what the
// disk says of the file nevertheless.
func (d *Dir) Stat(n Name) (i Info, err error) {
	file, err := os.Stat(d.Path(n))
	if err != nil {
		return i, fmt.Errorf("checkpoint: %w", err)
	}
	i.Name, i.Written, i.Bytes, i.Verified = n, file.ModTime(), file.Size(), d.Verified(n)
	h, err := d.Describe(n)
	if err != nil {
		return i, err
	}
	i.Header = h
	folder, files, err := d.files(h)
	for _, name := range files {
		part, e := os.Stat(filepath.Join(folder, name))
		if e != nil {
			return i, fmt.Errorf("checkpoint: %w", e)
		}
		i.Bytes += part.Size()
		i.Files++
	}
	return i, err
}

// files names the files with the parts of a checkpoint, and their folder.
func (d *Dir) files(h Header) (folder string, names []string, err error) {
	set, sharded := h.Set()
	if !sharded {
		return "", nil, nil
	}
	all, err := d.PartFiles()
	folder = d.PartsPath(set)
	if !d.Finished(set) {
		folder = filepath.Join(d.path, set.folder(suffixWriting))
	}
	return folder, all[set], err
}

// Verify reads all of a checkpoint that is here, and compares it with its hashes. The error is
// ErrElsewhere where what is here is intact, but not all of it.
func (d *Dir) Verify(n Name) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("verify checkpoint %v: %w", n, err)
		}
	}()
	file, c, err := d.open(n)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	chunk := make([]byte, min(chunkBytes, c.Data))
	for i := range c.chunks() {
		lo := i * chunkBytes
		if err := c.readChunk(file, i, chunk[:min(chunkBytes, c.Data-lo)]); err != nil {
			return err
		}
	}
	return d.verifySet(c.Header)
}

// verifySet verifies the parts that are here, and that they are all.
func (d *Dir) verifySet(h Header) error {
	set, sharded := h.Set()
	if !sharded {
		return nil
	}
	_, names, err := d.files(h)
	if err != nil {
		return err
	}
	tensors := make([]reshard.Tensor, len(h.Sharded))
	for i, t := range h.Sharded {
		tensors[i] = reshard.Tensor{Name: t.Name, Type: t.Type, Width: t.Width, Shape: t.Shape}
	}
	var pieces []reshard.Piece
	for _, name := range names {
		parts, err := d.verifiedParts(set, name)
		if err != nil {
			return err
		}
		for _, p := range parts {
			at := slices.IndexFunc(tensors, func(t reshard.Tensor) bool { return t.Equal(p.Tensor) })
			if at < 0 {
				return corrupt("%s: %s is no tensor of the checkpoint", name, p.Tensor.Name)
			}
			pieces = append(pieces, reshard.Piece{Tensor: at, Box: p.Box})
		}
	}
	if missing := reshard.Missing(tensors, [][]reshard.Piece{pieces}); len(missing) > 0 {
		return fmt.Errorf("%w: %s%v, for one", ErrElsewhere, tensors[missing[0].Tensor].Name, missing[0].Box)
	}
	return nil
}

func (d *Dir) verifiedParts(s Set, name string) ([]Part, error) {
	f, err := d.OpenPart(s, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Parts(), f.verify()
}

// Prune reads the newest checkpoints until as many as are to be kept are whole and intact, and
// removes all that are older, with their parts; it keeps those that are verified before newer ones,
// except the newest. It returns what it has removed. One with parts that are not here does not
// count: whether they are anywhere is not known.
func (d *Dir) Prune() (removed []Name, err error) {
	all, err := d.List()
	if err != nil {
		return nil, err
	}
	for kept := 0; len(all) > 0; {
		if kept == d.keep {
			return d.removeOlder(all)
		}
		n := all[0]
		all = all[1:]
		h, err := d.Describe(n)
		set, sharded := h.Set()
		if err == nil && sharded && !d.Finished(set) {
			continue // a rank may be writing it
		}
		switch err := d.Verify(n); {
		case err == nil:
			if kept++; kept == 1 {
				all = d.byWorth(all)
			}
		case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrElsewhere):
			return nil, err
		}
	}
	return nil, nil
}

func (d *Dir) removeOlder(names []Name) (removed []Name, err error) {
	folders, err := d.setFolders()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if err := d.drop(n); err != nil {
			return removed, err
		}
		removed = append(removed, n)
	}
	newest := slices.MaxFunc(names, Name.Compare)
	for _, f := range folders {
		if f.Name.Compare(newest) <= 0 {
			err = errors.Join(err, d.removeAll(f.path))
		}
	}
	return removed, err
}
