package shm

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// create returns a descriptor of anonymous shared memory.
func create(name string, bytes int) (fd int, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("shm: memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("shm: reserve %d bytes: %w", bytes, err)
	}
	return fd, nil
}

func attach(fd, bytes, protection int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, bytes, protection, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("shm: map %d bytes: %w", bytes, err)
	}
	return mem, nil
}

func detach(mem []byte) { _ = unix.Munmap(mem) }

// attachReadOnly maps all of a descriptor's memory for reading.
func attachReadOnly(fd int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("shm: stat an arena: %w", err)
	}
	return attach(fd, int(st.Size), unix.PROT_READ)
}

func readProcess(pid int, at uint64, dst []byte) error {
	for len(dst) > 0 {
		local := []unix.Iovec{{Base: unsafe.SliceData(dst)}}
		local[0].SetLen(len(dst))
		remote := []unix.RemoteIovec{{Base: uintptr(at), Len: len(dst)}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err == unix.ESRCH {
			return ErrDead
		}
		if err != nil {
			return fmt.Errorf("shm: read memory of process %d: %w", pid, err)
		}
		at += uint64(n)
		dst = dst[n:]
	}
	return nil
}

// processDead reports whether a process that could be read has no memory any more: it was killed or
// has exited.
func processDead(pid int) bool {
	var b [1]byte
	return readProcess(pid, 0, b[:]) == ErrDead //nolint:errorlint // nothing wraps it
}

// allowPtrace lets processes of the same user read this one's memory where the Yama security module
// would otherwise demand that they are its parents.
func allowPtrace() {
	scope, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && strings.TrimSpace(string(scope)) == "1" {
		const any = ^uintptr(0) // PR_SET_PTRACER_ANY
		_ = unix.Prctl(unix.PR_SET_PTRACER, any, 0, 0, 0)
	}
}

const (
	futexOpWait = 0 // not private: the word is shared between processes
	futexOpWake = 1
)

// futexWait sleeps while the word is v, until it is woken. It returns false after the given time.
// It may return early.
func futexWait(word *uint32, v uint32, most time.Duration) bool {
	t := unix.NsecToTimespec(int64(most))
	_, _, err := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(v), uintptr(unsafe.Pointer(&t)), 0, 0)
	return err != syscall.ETIMEDOUT
}

// futexWake wakes all sleepers.
func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1<<30, 0, 0, 0)
}
