package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Set names the parts that belong to a checkpoint. ID tells sets apart that were written under one
// name, by a job that began anew.
type Set struct {
	Name Name
	ID   uint64
}

const (
	suffixWhole   = ".parts"   // of the folder of a set of which all parts were written
	suffixWriting = ".writing" // of one of which that is not known
	suffixPart    = ".safetensors"
)

func (s Set) id() string { return fmt.Sprintf("%016x", s.ID) }

// Set names the parts that belong to the checkpoint; ok is false if it has none.
func (h Header) Set() (s Set, ok bool) {
	id, err := strconv.ParseUint(h.Parts, 16, 64)
	return Set{h.Name, id}, err == nil
}

// String formats a set as its checkpoint.
func (s Set) String() string { return s.Name.String() }

func (s Set) folder(suffix string) string {
	return strings.TrimSuffix(s.Name.file(), suffixFile) + "." + s.id() + suffix
}

func parseSet(folder string) (s Set, whole, ok bool) {
	base, whole := strings.CutSuffix(folder, suffixWhole)
	if !whole {
		base, ok = strings.CutSuffix(folder, suffixWriting)
	}
	at := strings.LastIndexByte(base, '.')
	if at < 0 || !whole && !ok {
		return s, false, false
	}
	s.ID, _ = strconv.ParseUint(base[at+1:], 16, 64) // what is no number has another name below
	s.Name, ok = parse(base[:at] + suffixFile)
	return s, whole, ok && base[at+1:] == s.id()
}

// PartsPath is the folder of a set that is whole. torch.distributed.checkpoint reads it with a
// HuggingFaceStorageReader.
func (d *Dir) PartsPath(s Set) string { return filepath.Join(d.path, s.folder(suffixWhole)) }

// PartsBytes returns about how large the files of parts are, and not less.
func PartsBytes(parts []Part) int64 {
	n := int64(1024)
	for _, p := range parts {
		data := int64(p.Box.Elements() * p.Tensor.Width)
		n += 512 + 64*int64(len(p.Tensor.Shape)) + 16*int64(len(p.Tensor.Name)) + data + (data/chunkBytes+1)*2*hashBytes
	}
	return n
}

// WriteParts writes the parts that a rank has of a set, reads them back, and returns when they are
// on the disk. The set is not whole before FinishParts. The parts must not change meanwhile.
func (d *Dir) WriteParts(ctx context.Context, s Set, rank, world int, parts []Part) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write parts of checkpoint %v: %w", s, err)
		}
	}()
	if byteOrder() != "little" {
		return errors.New("numbers in safetensors files are in little-endian order, and not on this machine")
	}
	folder := filepath.Join(d.path, s.folder(suffixWriting))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for i, file := range filesOf(parts) {
		name := fmt.Sprintf("rank-%05d", rank)
		if i > 0 {
			name += fmt.Sprintf("-%d", i)
		}
		if err := d.writePart(ctx, s, rank, world, file, filepath.Join(folder, name+suffixPart)); err != nil {
			return err
		}
	}
	return errors.Join(d.sync(folder), d.sync(d.path))
}

// filesOf divides parts: a file has one of each tensor.
func filesOf(parts []Part) [][]Part {
	var files [][]Part
	count := map[string]int{}
	for _, p := range parts {
		i := count[p.Tensor.Name]
		count[p.Tensor.Name]++
		if i == len(files) {
			files = append(files, nil)
		}
		files[i] = append(files[i], p)
	}
	return files
}

func (d *Dir) writePart(ctx context.Context, s Set, rank, world int, parts []Part, path string) (err error) {
	front, ordered, err := encodeParts(s, rank, world, parts)
	if err != nil {
		return err
	}
	w := &writer{dir: d, path: path + tempSuffix}
	if err := w.create(); err != nil {
		return err
	}
	write := func() error {
		if err := w.write(front); err != nil {
			return err
		}
		for _, p := range ordered {
			for chunk := range slices.Chunk(p.Memory, chunkBytes) {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := w.write(chunk); err != nil {
					return err
				}
			}
		}
		return w.sync()
	}
	if err := errors.Join(write(), w.file.Close()); err != nil {
		return errors.Join(err, d.remove(w.path))
	}
	if err := d.verifyPart(s, w.path); err != nil {
		return errors.Join(fmt.Errorf("what was written is not what is read: %w", err), d.remove(w.path))
	}
	if err := d.fault("rename", w.path); err != nil {
		return err
	}
	return os.Rename(w.path, path)
}

func (d *Dir) verifyPart(s Set, path string) error {
	f, err := d.openPart(s, path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.verify()
}

// FinishParts makes a set whole, when all ranks have written their parts. Each of them calls it, in
// case their directories are not the same.
func (d *Dir) FinishParts(s Set) error {
	from := filepath.Join(d.path, s.folder(suffixWriting))
	if err := d.fault("rename", from); err != nil {
		return err
	}
	if err := os.Rename(from, d.PartsPath(s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.sync(d.path)
}

// AbandonParts removes what was written of a set that was not finished.
func (d *Dir) AbandonParts(s Set) error {
	if h, err := d.Describe(s.Name); err == nil && h.Parts == s.id() {
		err = d.remove(d.Path(s.Name))
		if err != nil {
			return err
		}
	}
	return d.removeAll(filepath.Join(d.path, s.folder(suffixWriting)))
}

func (d *Dir) removeAll(path string) error {
	if err := d.fault("remove", path); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// setFolder is the folder of a set.
type setFolder struct {
	Set

	whole bool
	path  string
}

// setFolders lists the folders of sets, the newest first.
func (d *Dir) setFolders() ([]setFolder, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var all []setFolder
	for _, e := range entries {
		if s, whole, ok := parseSet(e.Name()); ok && e.IsDir() {
			all = append(all, setFolder{s, whole, filepath.Join(d.path, e.Name())})
		}
	}
	slices.SortFunc(all, func(a, b setFolder) int { return b.Name.Compare(a.Name) })
	return all, nil
}

// PruneParts removes the checkpoints for which there are enough newer ones, when a set is whole:
// with it, those that were finished and not refused. What was never finished and is older goes too.
func (d *Dir) PruneParts(newest Set) error {
	folders, err := d.setFolders()
	if err != nil {
		return err
	}
	kept := map[Name]Set{newest.Name: newest}
	for _, f := range folders {
		if f.whole && len(kept) < d.keep && f.Name.Compare(newest.Name) < 0 && !d.isCorrupt(f.Name) {
			kept[f.Name] = f.Set
		}
	}
	all, err := d.List()
	for _, n := range all {
		if _, ok := kept[n]; !ok && n.Compare(newest.Name) < 0 {
			err = errors.Join(err, d.drop(n))
		}
	}
	for _, f := range folders {
		if kept[f.Name] != f.Set && f.Name.Compare(newest.Name) <= 0 {
			err = errors.Join(err, d.removeAll(f.path))
		}
	}
	return errors.Join(err, d.removeTemporary())
}

// PartFiles names the files with parts of each set, whole or not, by the set.
func (d *Dir) PartFiles() (files map[Set][]string, err error) {
	folders, err := d.setFolders()
	if err != nil {
		return nil, err
	}
	files = map[Set][]string{}
	for _, f := range folders {
		entries, err := os.ReadDir(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), suffixPart) {
				files[f.Set] = append(files[f.Set], e.Name())
			}
		}
	}
	return files, nil
}

// Finished reports whether a set is known to have been whole.
func (d *Dir) Finished(s Set) bool {
	info, err := os.Stat(d.PartsPath(s))
	return err == nil && info.IsDir()
}
