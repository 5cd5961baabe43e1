package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Name orders the checkpoints of all jobs that continued from one another.
type Name struct {
	// Run is 1 for a job that began without a checkpoint, and one more for each that continued from
	// one.
	Run        uint64 `json:"run"`
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"`
}

// Compare orders names by run, generation and step.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Run, o.Run), cmp.Compare(n.Generation, o.Generation), cmp.Compare(n.Step, o.Step))
}

func (n Name) String() string { return fmt.Sprintf("l%d/g%d/%d", n.Run, n.Generation, n.Step) }

// file is the name of the file; files sort like names.
func (n Name) file() string {
	return fmt.Sprintf("run-%06d.generation-%010d.step-%014d", n.Run, n.Generation, n.Step) + suffixFile
}

const suffixFile = ".checkpoint"

func parse(file string) (n Name, ok bool) {
	_, err := fmt.Sscanf(file, "run-%d.generation-%d.step-%d.checkpoint", &n.Run, &n.Generation, &n.Step)
	return n, err == nil && n.file() == file
}

// Dir is a directory with the checkpoints of one job and of those that continued from it. It is
// safe for concurrent use, also by several processes.
type Dir struct {
	path string
	keep int

	mu       sync.Mutex
	corrupt  map[Name]bool // checkpoints that Read has refused
	run      uint64        // of what was written last; 0 = nothing was
	suspects []suspects

	// fault is called before each change of the disk; an error means that the process dies there.
	fault func(op, path string) error
}

const tempSuffix = ".unfinished"

// staleAfter is the age of a temporary file whose writer must be dead.
const staleAfter = time.Hour

// Open creates the directory, for this user alone, if it does not exist. keep is the number of
// checkpoints to keep, at least 1.
func Open(path string, keep int) (*Dir, error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint: keep is %d, at least 1 is needed", keep)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return &Dir{path: path, keep: keep, corrupt: map[Name]bool{}, fault: func(string, string) error { return nil }}, nil
}

// Path is the path of a checkpoint's file.
func (d *Dir) Path(n Name) string { return filepath.Join(d.path, n.file()) }

// List returns the names of all checkpoints, intact or not, the newest first.
func (d *Dir) List() ([]Name, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var all []Name
	for _, e := range entries {
		if n, ok := parse(e.Name()); ok {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b Name) int { return b.Compare(a) })
	return all, nil
}

// prune removes checkpoints for which there are enough others: the newest one is kept, then those
// that are verified, then newer ones. It also removes temporary files of dead writers.
func (d *Dir) prune() error {
	err := d.removeSuspects()
	all, e := d.List()
	if err = errors.Join(err, e); e != nil {
		return err
	}
	for kept := 0; len(all) > 0; {
		n := all[0]
		all = all[1:]
		switch {
		case kept >= d.keep:
			err = errors.Join(err, d.drop(n))
		case !d.isCorrupt(n):
			if kept++; kept == 1 {
				all = d.byWorth(all)
			}
		}
	}
	return errors.Join(err, d.removeTemporary())
}

// removeTemporary removes temporary files of dead writers.
func (d *Dir) removeTemporary() (err error) {
	temporary, _ := filepath.Glob(filepath.Join(d.path, "*"+tempSuffix)) // the pattern is valid
	for _, p := range temporary {
		if info, e := os.Stat(p); e == nil && time.Since(info.ModTime()) > staleAfter {
			err = errors.Join(err, d.remove(p))
		}
	}
	return err
}

func (d *Dir) isCorrupt(n Name) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.corrupt[n]
}

// remove removes a file, which another process may have removed already.
func (d *Dir) remove(path string) error {
	if err := d.fault("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
