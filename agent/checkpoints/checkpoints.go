// Package checkpoints manages a checkpoint folder for each job that configures none, all of them
// within one quota of disk.
//
// A job has one folder on each node; workers write into it (package elastic/checkpoint), and ask
// before each write whether there is space. It exists as long as the job: when all workers of the
// job have died at once, the next ones begin with what they find in it.
package checkpoints

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// KeepFor is how long the folder of an unknown job is kept: the job may return to this node, or it
// has ended while no agent ran.
const KeepFor = 7 * 24 * time.Hour

// staleAfter is how long such a folder is safe from other jobs that need its space.
const staleAfter = time.Hour

// freeShare bounds what is left free: at most a tenth of the disk, whatever Free says.
const freeShare = 10

// filesKnown bounds the files of a folder that are counted, and of each folder in it: normally two,
// or one for each rank, but the user may put anything there.
const filesKnown = 1024

// Store has the folders of a node, each named like its job.
type Store struct {
	Dir   string
	Space int64 // bytes that all of them may take; 0 = no job gets a folder
	Free  int64 // bytes that they leave free on the disk, at most a tenth of it

	mu      sync.Mutex
	granted map[ident.JobID]int64 // bytes that a job may have on disk
	ended   map[ident.JobID]bool  // jobs whose processes may still run
}

// Folder returns the folder of a job, which belongs to a user. It is made if there is none.
func (s *Store) Folder(job ident.JobID, uid, gid int) (string, error) {
	if err := job.Check(); err != nil { // it becomes the name of a directory
		return "", err
	}
	// Users may pass through the parent directory, and not list it.
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return "", err
	}
	if err := s.ours(); err != nil {
		return "", err
	}
	path := filepath.Join(s.Dir, string(job))
	switch err := os.Mkdir(path, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return path, nil
	case err != nil:
		return "", err
	}
	if uid != os.Geteuid() {
		return path, os.Lchown(path, uid, gid)
	}
	return path, nil
}

// ours returns an error unless the folder of all jobs is this user's alone to change: another one
// could put links in place of what is made and removed in it.
func (s *Store) ours() error {
	info, err := os.Lstat(s.Dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of this agent's user that nobody else may change (%s): remove it, or name another place", s.Dir, info.Mode())
	}
	return nil
}

// Reachable returns an error that names the first folder on the way to those of jobs that a user
// may not pass through.
func (s *Store) Reachable(uid, gid uint32) error {
	for dir := s.Dir; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it will be made
		case err != nil:
			return err
		default:
			if owner, ok := info.Sys().(*syscall.Stat_t); ok && !passes(info.Mode(), owner, uid, gid) {
				return fmt.Errorf("user %d may not enter %s (%s)", uid, dir, info.Mode().Perm())
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func passes(mode fs.FileMode, owner *syscall.Stat_t, uid, gid uint32) bool {
	switch {
	case owner.Uid == uid:
		return mode&0o100 != 0
	case owner.Gid == gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

// Reserve grants a job the space for a checkpoint of that size in addition to the previous one,
// or says why there is none. held are the jobs of this node; folders of other jobs are removed if
// the space is needed, the oldest first.
func (s *Store) Reserve(job ident.JobID, bytes int64, held []ident.JobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[job] {
		return errcode.Errorf(errcode.Conflict, "the job ends, and with it its checkpoints")
	}
	if own := filepath.Join(s.Dir, string(job)); !isDir(own) {
		return errcode.Errorf(errcode.NotFound, "there is no %s any more: start the job again, or make it, for the user of its workers alone", own)
	}
	need := 2 * bytes
	folders, err := s.folders()
	if err != nil {
		return err
	}
	var others int64
	var stale []folder
	for _, f := range folders {
		if f.job == job {
			continue
		}
		others += max(f.bytes, s.granted[f.job])
		if !slices.Contains(held, f.job) && time.Since(f.used) > staleAfter {
			stale = append(stale, f)
		}
	}
	slices.SortFunc(stale, func(a, b folder) int { return a.used.Compare(b.used) })
	for _, f := range stale {
		if others+need <= s.Space {
			break
		}
		others -= max(f.bytes, s.granted[f.job])
		if err := s.remove(f.job); err != nil {
			return err
		}
	}
	const mib = 1 << 20
	if others+need > s.Space {
		return errcode.Errorf(errcode.Exhausted, "two checkpoints of %d MiB need more than the %d MiB that checkpoints may take on this node, of which other jobs have %d: name a folder of your own (REGROUP_CHECKPOINT_DIR), or give the agent a larger --checkpoint-space", bytes/mib, s.Space/mib, others/mib)
	}
	size, free, err := disk(s.Dir)
	if err != nil {
		return err
	}
	if left := min(s.Free, size/freeShare); free-left < bytes {
		return errcode.Errorf(errcode.Exhausted, "a checkpoint has %d MiB, the disk of %s has %d MiB free, and %d of them are left to others: give the agent a smaller --checkpoint-free, or another folder (--checkpoints)", bytes/mib, s.Dir, free/mib, left/mib)
	}
	if s.granted == nil {
		s.granted = map[ident.JobID]int64{}
	}
	s.granted[job] = need
	return nil
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// disk returns the size of a folder's disk, and how much of it is free, in bytes.
func disk(dir string) (size, free int64, err error) {
	var d syscall.Statfs_t
	if err := syscall.Statfs(dir, &d); err != nil {
		return 0, 0, err
	}
	block := uint64(d.Bsize)
	return int64(d.Blocks * block), int64(d.Bavail * block), nil
}

// End removes the folder of a job that has ended. Workers of it that still run get no more space.
func (s *Store) End(job ident.JobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[ident.JobID]bool{}
	}
	s.ended[job] = true
	return s.remove(job)
}

// Expire removes the folders of jobs that the node has not held for KeepFor.
func (s *Store) Expire(now time.Time, held []ident.JobID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for job := range s.ended {
		if !slices.Contains(held, job) { // none of its processes is left
			delete(s.ended, job)
		}
	}
	folders, err := s.folders()
	errs := []error{err}
	for _, f := range folders {
		switch {
		case slices.Contains(held, f.job):
			errs = append(errs, os.Chtimes(filepath.Join(s.Dir, string(f.job)), now, now))
		case now.Sub(f.used) > KeepFor:
			errs = append(errs, s.remove(f.job))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) remove(job ident.JobID) error {
	delete(s.granted, job)
	if err := job.Check(); err != nil {
		return err
	}
	switch err := s.ours(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return os.RemoveAll(filepath.Join(s.Dir, string(job)))
}

// folder is that of a job on disk.
type folder struct {
	job   ident.JobID
	bytes int64
	used  time.Time // when it was last written, or its job last seen here
}

// folders lists those that there are, without what others have put beside them.
func (s *Store) folders() (all []folder, err error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.IsDir() || ident.JobID(e.Name()).Check() != nil {
			continue // it has just been removed, or is no job's
		}
		all = append(all, folder{job: ident.JobID(e.Name()), bytes: sizeOf(filepath.Join(s.Dir, e.Name()), true), used: info.ModTime()})
	}
	return all, err
}

// sizeOf returns the bytes of the files in a folder, and of those in its folders if deep: the parts
// of a sharded state. It is 0 if it cannot be read.
func sizeOf(dir string, deep bool) (bytes int64) {
	f, err := os.Open(dir)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(filesKnown) // those that could be read count
	for _, e := range entries {
		if e.IsDir() {
			if deep {
				bytes += sizeOf(filepath.Join(dir, e.Name()), false)
			}
		} else if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
