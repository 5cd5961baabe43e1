package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/events/errcode"
)

// A state directory holds one store per broker. The first is the directory itself: it belongs to
// `regroup up`, or to the run that finds it free. A run that finds it in use has its own store in
// runs/2, runs/3 and so on. The process that holds the lock of a store owns it; the system releases
// the lock when the process ends.
const (
	lockName  = "lock"
	ownerFile = "server.json" // the owner; stale without a lock
	runsDir   = "runs"
	maxStores = 1000
)

// Kinds of owners.
const (
	kindUp    = "up"       // serves all users of this machine
	kindRun   = "run"      // serves its own job alone
	kindNodes = "torchrun" // serves its own job, and the other nodes of it
	kindRead  = "read"     // reads the store of an ended owner
)

// ErrInUse says that another process has the store open.
var ErrInUse = errors.New("it is in use")

// owner describes the process that has a store open, for other processes.
type owner struct {
	Kind string `json:"kind"`
	PID  int    `json:"pid"`
	URL  string `json:"url,omitempty"` // of its broker; empty until it listens

	// How other processes of this user are admitted: the file is theirs alone.
	Secret string `json:"secret,omitempty"`
	Creds  string `json:"creds,omitempty"` // paths, with a directory of identities
	TLSCA  string `json:"tlsca,omitempty"`
}

func (o owner) String() string {
	if o.Kind == "" {
		return "another regroup"
	}
	return fmt.Sprintf("regroup %s (pid %d)", o.Kind, o.PID)
}

// stopped reports whether the process is stopped, as by Ctrl-Z: it does not reply until it is
// continued.
func (o owner) stopped() bool {
	t, ok := procfs.Dir("/proc").Process(o.PID)
	return ok && (t.State == 'T' || t.State == 't')
}

// storeDir is the directory of the nth store, from 1.
func storeDir(state string, n int) string {
	if n == 1 {
		return state
	}
	return filepath.Join(state, runsDir, strconv.Itoa(n))
}

// stores lists the directories of a state directory that hold, or held, a broker.
func stores(state string) []string {
	var all []string
	for n := 1; n <= maxStores; n++ {
		dir := storeDir(state, n)
		if _, err := os.Stat(dir); err != nil && n > 1 {
			break // a run takes the first that is free
		}
		if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
			all = append(all, dir)
		}
	}
	return all
}

// lockStore makes this process the owner of a store; ErrInUse if another is.
func lockStore(dir, kind string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	f, err := tryLock(dir, os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	if err := (owner{Kind: kind, PID: os.Getpid()}).write(dir); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func tryLock(dir string, open, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), open|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, errcode.Errorf(errcode.Conflict, "state folder %s: %w by %s", dir, ErrInUse, readOwner(dir))
	}
	return f, nil
}

// owned reports whether a process has a store open.
func owned(dir string) bool {
	f, err := tryLock(dir, 0, unix.LOCK_SH)
	if err == nil {
		_ = f.Close()
	}
	return errors.Is(err, ErrInUse)
}

// readOwner reads the recorded owner of a store; the zero owner if it has not been recorded yet.
func readOwner(dir string) owner {
	var o owner
	b, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || json.Unmarshal(b, &o) != nil {
		return owner{}
	}
	return o
}

func (o owner) write(dir string) error {
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	file := filepath.Join(dir, ownerFile)
	if err := os.WriteFile(file+".new", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}
