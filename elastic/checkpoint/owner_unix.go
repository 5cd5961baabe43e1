//go:build unix

package checkpoint

import (
	"fmt"
	"os"
	"syscall"
)

// trusted returns an error if a user who is neither this one nor root may have written a file.
func trusted(info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch me := os.Geteuid(); {
	case !ok:
		return fmt.Errorf("%w: its owner cannot be seen", ErrUntrusted)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is no regular file (%s)", ErrUntrusted, info.Mode())
	case int(st.Uid) != me && st.Uid != 0:
		return fmt.Errorf("%w: its owner is user %d, this program runs as user %d: run it as that user, or give it a copy of its own", ErrUntrusted, st.Uid, me)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others may write it (%s): check where it comes from, then chmod go-w", ErrUntrusted, info.Mode().Perm())
	}
	return nil
}
