package boot

import (
	"os"

	"golang.org/x/sys/unix"
)

// Background reports whether a terminal is that of this process, and another one reads it: to read
// it or to change its modes would stop this one.
func Background(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}
