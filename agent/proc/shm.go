package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// sharedMemories are the /dev/shm of jobs that have a limit for it: each is a file system in memory
// of that size, in a mount namespace that the workers of the job on this node share. It ends
// with the last of them, whatever they have left in it.
type sharedMemories struct {
	mu   sync.Mutex
	jobs map[ident.JobID]*memory
}

type memory struct {
	all   *sharedMemories
	job   ident.JobID
	space *os.File // the mount namespace
	users int
}

const sharedDir = "/dev/shm"

// take returns the memory of a job, for one more worker. It must be called on the locked thread.
// The error names the limit.
func (m *sharedMemories) take(job ident.JobID, size spec.Bytes) (*memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jobs == nil {
		m.jobs = map[ident.JobID]*memory{}
	}
	one := m.jobs[job]
	if one == nil {
		one = &memory{all: m, job: job}
		if err := elsewhere(nil, func() error { return one.make(size) }); err != nil {
			one.close()
			return nil, fmt.Errorf("processes.limits.shm: this node cannot limit it: %w", err)
		}
		m.jobs[job] = one
	}
	one.users++
	return one, nil
}

// make mounts the file system in a new namespace, into which mounts of the node go on to come.
func (m *memory) make(size spec.Bytes) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("regroup", sharedDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size="+strconv.FormatUint(uint64(size), 10)); err != nil {
		return fmt.Errorf("mount %s: %w", sharedDir, err)
	}
	var err error
	m.space, err = os.Open(threadSpace)
	return err
}

// leave ends the use by one worker. A nil memory is that of a job without the limit.
func (m *memory) leave() {
	if m == nil {
		return
	}
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(m.all.jobs, m.job)
		m.close()
	}
}

func (m *memory) close() {
	if m.space != nil {
		_ = m.space.Close()
	}
}

// start runs begin, which starts a process, in the namespace. It must be called on the locked
// thread: the child inherits the namespace of the thread that forks it.
func (m *memory) start(begin func() error) error {
	if m == nil {
		return begin()
	}
	return elsewhere(m.space, begin)
}

const threadSpace = "/proc/thread-self/ns/mnt"

// elsewhere runs fn in another mount namespace, unless that is nil, and brings the thread back from
// wherever fn has left it, into its working directory too: entering a namespace changes that to its
// root, for this thread alone.
func elsewhere(space *os.File, fn func() error) error {
	home, err := os.Open(threadSpace)
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	dir, err := unix.Getwd()
	if err != nil {
		return err
	}
	if space != nil {
		if err = unix.Unshare(unix.CLONE_FS); err == nil { // a thread that shares its directories may not enter
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNS)
		}
		if err == nil {
			err = unix.Chdir(dir)
		}
	}
	if err == nil {
		err = fn()
	}
	back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNS)
	if errors.Is(back, unix.EINVAL) || errors.Is(back, unix.EPERM) { // fn could not leave it: the thread still shares its directories
		back = sameSpace(home)
	}
	if back == nil {
		back = unix.Chdir(dir)
	}
	if back != nil { // its next child would be there
		err = errors.Join(err, fmt.Errorf("proc: the agent does not come back from a worker's mount namespace: %w", back))
	}
	return err
}

// sameSpace returns an error unless the thread is in a namespace.
func sameSpace(space *os.File) error {
	now, err := os.Stat(threadSpace)
	if err != nil {
		return err
	}
	want, err := space.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(now, want) {
		return errors.New("it is in another one")
	}
	return nil
}
