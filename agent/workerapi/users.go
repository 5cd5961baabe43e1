package workerapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// userSockets are the sockets of workers that run as other users: one for each user, who alone may
// use it. They are in a directory of their own, because nobody else may enter the agent's.
type userSockets struct {
	mu     sync.Mutex
	dir    string // empty = none was needed
	opened map[[2]int]bool
	serve  func(l net.Listener) // nil = not running
	queued []net.Listener       // until it runs
}

// Open returns the path of a socket for the workers of a user, and a directory where they may leave
// files for the agent: nobody else may enter it. Both exist until Run ends. This process must be
// root.
func (s *Server) Open(uid, gid int) (socket, dir string, err error) {
	u := &s.users
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dir == "" {
		removeLeft(s.noteFile())
		if u.dir, err = openDir(); err != nil {
			return "", "", err
		}
		_ = os.WriteFile(s.noteFile(), []byte(u.dir), 0o600) // without it a killed agent leaves the directory
		u.opened = map[[2]int]bool{}
	}
	who := [2]int{uid, gid}
	// The directory above is root's, so that the user cannot put anything in place of the two.
	own := filepath.Join(u.dir, strconv.Itoa(uid)+"-"+strconv.Itoa(gid))
	socket, dir = filepath.Join(own, "agent.sock"), filepath.Join(own, "files")
	if u.opened[who] {
		return socket, dir, nil
	}
	if err := errors.Join(mkdir(own, 0o711), mkdir(dir, 0o700)); err != nil {
		return "", "", err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return "", "", fmt.Errorf("workerapi: listen: %w", err)
	}
	if err := errors.Join(os.Chmod(socket, 0o600), os.Chown(socket, uid, gid), os.Chown(dir, uid, gid)); err != nil {
		return "", "", errors.Join(err, l.Close())
	}
	u.opened[who] = true
	if u.serve == nil {
		u.queued = append(u.queued, l)
	} else {
		u.serve(l)
	}
	return socket, dir, nil
}

// runUsers serves the sockets with srv from now on. end removes them; srv must be closed by then.
func (s *Server) runUsers(srv *http.Server) (end func()) {
	var all sync.WaitGroup
	u := &s.users
	u.mu.Lock()
	defer u.mu.Unlock()
	u.serve = func(l net.Listener) { all.Go(func() { _ = srv.Serve(l) }) } // it fails when srv is closed
	for _, l := range u.queued {
		u.serve(l)
	}
	u.queued = nil
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.serve = func(l net.Listener) { _ = l.Close() }
		all.Wait()
		if u.dir != "" {
			_ = os.RemoveAll(u.dir)
			_ = os.Remove(s.noteFile())
		}
	}
}

// noteFile is the file, in the agent's own directory, that names the directory of this one.
func (s *Server) noteFile() string { return filepath.Join(filepath.Dir(s.opt.Socket), "sockets") }

// removeLeft removes the directory that a note of an agent that was killed names.
func removeLeft(note string) {
	b, err := os.ReadFile(note)
	if err != nil {
		return
	}
	if dir := string(b); filepath.IsAbs(dir) && strings.HasPrefix(filepath.Base(dir), dirPrefix) {
		_ = os.RemoveAll(dir)
	}
	_ = os.Remove(note)
}

// mkdir creates a directory with exactly these permissions.
func mkdir(path string, mode os.FileMode) error {
	return errors.Join(os.Mkdir(path, mode), os.Chmod(path, mode)) // without the umask
}

// dirPrefix begins the names of these directories.
const dirPrefix = "regroup-"

// openDir creates a directory that all users may pass through and only this one may change, with an
// unpredictable name.
func openDir() (string, error) {
	var all error
	for _, base := range []string{"/run", os.TempDir(), "/tmp"} {
		dir, err := os.MkdirTemp(base, dirPrefix)
		if err == nil {
			err = os.Chmod(dir, 0o711)
		}
		if err == nil {
			if err = passable(dir); err == nil {
				return dir, nil
			}
			_ = os.Remove(dir)
		}
		all = errors.Join(all, err)
	}
	return "", fmt.Errorf("workerapi: no directory for the sockets of other users: %w", all)
}

// passable returns an error if other users cannot pass through a directory and those above it.
func passable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return err
		case info.Mode().Perm()&0o001 == 0:
			return fmt.Errorf("other users cannot pass through %s (%s)", dir, info.Mode().Perm())
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}
