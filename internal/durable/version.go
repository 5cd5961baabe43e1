package durable

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Version is what a file was when it was looked at, by which a change is found without reading it.
// The zero value is that of a file that could not be looked at.
type Version struct {
	info fs.FileInfo
	at   time.Time
}

// settled is how old a change must be: times of files have the resolution of a clock of the kernel,
// a few milliseconds, or of a file system elsewhere.
const settled = time.Second

// VersionOf returns the version that a file, or what a link leads to, has now. It opens the file:
// NFS asks the server then, and may not when only its state is asked for.
func VersionOf(path string) Version {
	f, err := os.Open(path)
	if err != nil {
		return Version{}
	}
	info, err := f.Stat()
	if errors.Join(err, f.Close()) != nil {
		return Version{}
	}
	return Version{info, time.Now()}
}

// changed returns when the file or its state changed; unlike the time of the content nobody can set
// it.
func (v Version) changed() time.Time {
	if s, ok := v.info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return v.info.ModTime()
}

// Same reports whether the file has not changed from one version to a later one. That is not known,
// and false, if it had changed shortly before the first.
func (v Version) Same(later Version) bool {
	return v.info != nil && later.info != nil && os.SameFile(v.info, later.info) && v.info.Size() == later.info.Size() &&
		v.changed().Equal(later.changed()) && v.at.Sub(v.changed()) > settled
}
