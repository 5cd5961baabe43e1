package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Dir holds the checkpoints of one job and of those that went on from it. It is safe for concurrent use, also by several
// processes.
type Dir struct {
	dir  string
	keep int

	mu  sync.Mutex
	bad map[Name]bool // that were read and refused

	// fault is asked before each change on the disk; an error means that this process is dead. nil = it lives.
	fault func(op, path string) error
}

// unfinished is what names of files that are being written end with.
const unfinished = ".unfinished"

// staleAfter is how old an unfinished file is whose writer must be dead.
const staleAfter = time.Hour

// Open makes the folder if it is not there. keep is how many checkpoints are kept, at least 1.
func Open(dir string, keep int) (*Dir, error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint: keep is %d, at least 1 is needed", keep)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return &Dir{dir: dir, keep: keep, bad: map[Name]bool{}}, nil
}

// Path is where a checkpoint lies.
func (f *Dir) Path(n Name) string { return filepath.Join(f.dir, n.file()) }

// List returns the names of the checkpoints that are there, whole or not, the newest first.
func (f *Dir) List() ([]Name, error) {
	entries, err := os.ReadDir(f.dir)
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

// tidy removes checkpoints that are older than enough good ones, and what dead writers have left.
func (f *Dir) tidy() error {
	all, err := f.List()
	if err != nil {
		return err
	}
	good := 0
	for _, n := range all {
		switch {
		case good >= f.keep:
			err = errors.Join(err, f.remove(f.Path(n)))
		case !f.refused(n):
			good++
		}
	}
	left, _ := filepath.Glob(filepath.Join(f.dir, "*"+unfinished)) // the pattern is a good one
	for _, p := range left {
		if info, e := os.Stat(p); e == nil && time.Since(info.ModTime()) > staleAfter {
			err = errors.Join(err, f.remove(p))
		}
	}
	return err
}

func (f *Dir) refused(n Name) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad[n]
}

// remove removes a file that another process may have removed before.
func (f *Dir) remove(path string) error {
	if err := f.alive("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *Dir) alive(op, path string) error {
	if f.fault == nil {
		return nil
	}
	return f.fault(op, path)
}
