// Package readfile reads files whose paths others choose, or that they may have put in the place of
// the expected ones.
package readfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Regular reads at most so many bytes of a regular file. It does not block on a FIFO, and follows a
// link at the end of the path only if links is set.
func Regular(path string, most int, links bool) (b []byte, info os.FileInfo, err error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	if !links {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, syscall.ELOOP) && !links {
		return nil, nil, errors.New("it is a link")
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("it is no regular file (%s)", info.Mode())
	}
	b, err = io.ReadAll(io.LimitReader(f, int64(most)))
	return b, info, err
}

// OfUser returns an error unless a file belongs to a user and has one name: another name could be
// that of a file which only this process may read.
func OfUser(info os.FileInfo, uid int) error {
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int64(st.Uid) != int64(uid) || st.Nlink != 1 {
		return errors.New("it is a file of another user, or has a second name")
	}
	return nil
}
