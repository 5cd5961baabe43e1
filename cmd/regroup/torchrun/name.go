package torchrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/errcode"
)

// maxNames bounds the nodes of one machine.
const maxNames = 1000

// claimName returns a name for this node that no other process of this machine has: that of the
// host, or with a number. It is free again when the process ends.
func claimName(stateDir, host string) (string, error) {
	dir := filepath.Join(stateDir, "names")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("state folder: %w", err)
	}
	for n := 1; n <= maxNames; n++ {
		name := host
		if n > 1 {
			name = fmt.Sprintf("%s-%d", host, n)
		}
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return "", fmt.Errorf("state folder: %s: %w", dir, err)
		}
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // the lock ends with the process: fd stays open
		if err == nil {
			return name, nil
		}
		_ = unix.Close(fd)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return "", fmt.Errorf("state folder: %s: %w", dir, err)
		}
	}
	return "", errcode.Errorf(errcode.Conflict, "%d processes of this machine are nodes already", maxNames)
}
