package shm

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexOpWait = 0 // not private: the word is shared between processes
	futexOpWake = 1
)

// futexWait sleeps while the word is v, until it is woken, or for so long: then it returns
// false. It may return early.
func futexWait(word *uint32, v uint32, most time.Duration) bool {
	t := unix.NsecToTimespec(int64(most))
	_, _, err := syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(v), uintptr(unsafe.Pointer(&t)), 0, 0)
	return err != syscall.ETIMEDOUT
}

// yield lets another thread run on this processor.
func yield() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// futexWake wakes who sleeps.
func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1<<30, 0, 0, 0)
}
