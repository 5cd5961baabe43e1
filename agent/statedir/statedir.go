// Package statedir keeps the state directory of an agent: for one agent at a time, and with the
// names of those that it belonged to before.
package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/durable"
)

// Of returns the state directory of the agent of a node, in that of all commands of a user.
func Of(state, node string) string { return filepath.Join(state, "agents", node) }

// Socket returns the path of an agent's socket in its state directory.
func Socket(dir string) string { return filepath.Join(dir, "agent.sock") }

func lockFile(dir string) string { return filepath.Join(dir, "agent.lock") }

// Lock keeps other agents out of the state directory while this one runs, because fencing an
// earlier incarnation would kill the workers of a running agent. The kernel releases the lock when
// the process ends.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "agent: state directory: %w", err)
	}
	path := lockFile(dir)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "agent: %w", err)
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errcode.Errorf(errcode.Conflict, "agent: another agent runs here with the state directory %s: stop it, or give this one another name (--node, REGROUP_AGENT_NODE)", dir)
		}
		if errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
			return func() {}, nil // a file system without locks: the user must keep agents apart
		}
		return nil, errcode.Errorf(errcode.Internal, "agent: lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// lock takes the lock for this process alone. Those that look whether it is taken share it for a
// moment: only if it cannot be shared does another agent have it.
func lock(f *os.File) error {
	for end := time.Now().Add(lookWithin); ; time.Sleep(100 * time.Microsecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			return err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
			return err
		}
	}
}

// lookWithin bounds the wait for those that look: one of them may be stopped.
const lookWithin = 10 * time.Second

// InUse reports whether an agent runs with the state directory.
func InUse(dir string) bool {
	f, err := os.OpenFile(lockFile(dir), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// predecessorsKept bounds them. Discovery knows the last one that it has admitted.
const predecessorsKept = 16

func predecessorsFile(dir string) string { return filepath.Join(dir, "incarnations") }

// Succeed adds an incarnation to those of the directory and returns the ones before it, since one
// was last admitted by discovery. The agent that has the directory has ended their processes, and
// may take their place at once.
func Succeed(dir string, own ident.Incarnation) ([]ident.Incarnation, error) {
	before, err := Incarnations(dir)
	if err != nil {
		return nil, err
	}
	before = before[max(0, len(before)-predecessorsKept):]
	return before, writeIncarnations(dir, append(before, own))
}

// Incarnations returns those that the directory belongs to.
func Incarnations(dir string) (all []ident.Incarnation, err error) {
	b, err := os.ReadFile(predecessorsFile(dir))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, word := range strings.Fields(string(b)) {
		all = append(all, ident.Incarnation(word))
	}
	return all, nil
}

// Admitted forgets all incarnations but this one: discovery has its name now.
func Admitted(dir string, own ident.Incarnation) error {
	return writeIncarnations(dir, []ident.Incarnation{own})
}

func writeIncarnations(dir string, all []ident.Incarnation) error {
	var b strings.Builder
	for _, i := range all {
		b.WriteString(string(i) + "\n")
	}
	return durable.WriteFile(predecessorsFile(dir), []byte(b.String()))
}
