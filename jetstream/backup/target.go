package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
)

// target is the directory of a backup that is being made.
type target struct {
	dir  string
	made bool     // it did not exist before
	lock *os.File // the directory itself; the lock ends with the process
}

// openTarget makes the directory of a backup, or takes one that is empty but for the files of a
// backup that was never completed.
func openTarget(dir string) (target, error) {
	unavailable := func(err error) error { return errcode.Errorf(errcode.Unavailable, "backup: %w", err) }
	_, err := os.Stat(dir)
	t := target{dir: dir, made: errors.Is(err, fs.ErrNotExist)}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return t, unavailable(err)
	}
	if t.lock, err = os.Open(dir); err != nil {
		return t, unavailable(err)
	}
	refuse := func(err error) (target, error) {
		_ = t.lock.Close()
		return t, err
	}
	switch err := syscall.Flock(int(t.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return refuse(errcode.Errorf(errcode.Conflict, "another backup is being made in %s: name another directory, or wait for its end", dir))
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP): // a file system without locks
	case err != nil:
		return refuse(unavailable(err))
	}
	_, others, err := filesIn(dir)
	if err != nil {
		return refuse(unavailable(err))
	}
	if others > 0 {
		return refuse(errcode.Errorf(errcode.Conflict, "%s is not empty: name a directory that is, or does not exist", dir))
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return refuse(unavailable(err))
	}
	t.clear()
	return t, nil
}

// filesIn returns the files that an incomplete backup has left, and how many others there are; all
// are others where there is a manifest.
func filesIn(dir string) (left []string, others int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		known := strings.HasPrefix(e.Name(), "."+ManifestFile+"-") || // see durable.WriteFile
			slices.ContainsFunc(events.Streams(), func(name string) bool { return e.Name() == fileOf(name) })
		if e.Name() == ManifestFile {
			return nil, len(entries), err
		}
		if known && e.Type().IsRegular() {
			left = append(left, filepath.Join(dir, e.Name()))
		} else {
			others++
		}
	}
	return left, others, err
}

// clear removes the files of an incomplete backup.
func (t target) clear() {
	left, _, _ := filesIn(t.dir) // what cannot be listed stays
	for _, file := range left {
		_ = os.Remove(file) // what stays is written over, or found by the next attempt
	}
}

// close ends the work on a backup; failed = nothing of it is to stay.
func (t target) close(failed bool) {
	if failed {
		t.clear()
		if t.made {
			_ = os.Remove(t.dir) // unless there is something of others
		}
	}
	_ = t.lock.Close()
}
