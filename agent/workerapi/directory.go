package workerapi

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// shortPath returns a path for a socket in a directory with an unpredictable name, so that no other
// user can create it first.
func shortPath() string {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if i, err := os.Stat(base); err != nil || !i.IsDir() || len(base) > maxPath/2 {
		base = os.TempDir()
	}
	return filepath.Join(base, "regroup-"+strings.ToLower(rand.Text()), "agent.sock")
}

// private returns an error if another user could replace a socket in a directory.
func private(dir string) error {
	i, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("workerapi: directory of the socket: %w", err)
	}
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("workerapi: whose directory %s is cannot be seen", dir)
	}
	switch me := os.Getuid(); {
	case me != 0 && int(st.Uid) != me && st.Uid != 0:
		return fmt.Errorf("workerapi: the directory %s is user %d's: he could pass as this node's agent; give one of your own (--state-dir)", dir, st.Uid)
	case i.Mode().Perm()&0o022 != 0 && i.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("workerapi: the directory %s may be changed by others (%s), who could pass as this node's agent: chmod go-w %s", dir, i.Mode().Perm(), dir)
	}
	return nil
}
