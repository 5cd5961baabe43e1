package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexOpWait = 0 // not private: the word is shared between processes
	futexOpWake = 1
)

// futexWait sleeps while the word is v, until it is woken. It may return early.
func futexWait(word *uint32, v uint32) {
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWait, uintptr(v), 0, 0, 0)
}

// futexWake wakes who sleeps.
func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexOpWake, 1<<30, 0, 0, 0)
}
