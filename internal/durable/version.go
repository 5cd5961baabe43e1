package durable

import (
	"io/fs"
	"os"
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

// VersionOf returns the version that a file, or what a link leads to, has now.
func VersionOf(path string) Version {
	info, err := os.Stat(path)
	if err != nil {
		return Version{}
	}
	return Version{info, time.Now()}
}

// Same reports whether the file has not changed from one version to a later one. That is not known,
// and false, if it had changed shortly before the first.
func (v Version) Same(later Version) bool {
	return v.info != nil && later.info != nil && os.SameFile(v.info, later.info) && v.info.Size() == later.info.Size() &&
		v.info.ModTime().Equal(later.info.ModTime()) && v.at.Sub(v.info.ModTime()) > settled
}
