// Package procfs reads what the kernel tells about processes, as proc(5) describes it.
package procfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is the mount point, such as /proc.
type Dir string

// Task is what the stat file of a thread says, or that of a process, which is about its first
// thread.
type Task struct {
	State   byte               // such as 'Z' for a zombie
	Parent  string             // id of the parent process; 0 = none, or one that cannot be seen here
	Flags   uint64             // PF_EXITING and others of include/linux/sched.h
	Start   uint64             // when it was started, in clock ticks since boot
	Pending uint64             // signals that it has not taken yet, as bits
	Status  syscall.WaitStatus // as wait will return it; 0 = unknown
}

// Task reads the stat file in a folder, such as 10, or 10/task/11. ok is false if there is none.
func (d Dir) Task(path ...string) (t Task, ok bool) {
	b, err := d.read(filepath.Join(path...), "stat")
	// The name of the program, in parentheses, may contain anything: fields are counted after the
	// last parenthesis, of which the first is field 3.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if err != nil || len(f) < 2 {
		return t, false
	}
	number := func(field int) uint64 {
		if field-3 >= len(f) {
			return 0
		}
		n, _ := strconv.ParseUint(f[field-3], 10, 64)
		return n
	}
	return Task{
		State: f[0][0], Parent: f[1], Flags: number(9), Start: number(22), Pending: number(31), Status: syscall.WaitStatus(number(52)),
	}, true
}

// Process is Task for the first thread of a process.
func (d Dir) Process(pid int) (Task, bool) { return d.Task(strconv.Itoa(pid)) }

// Environ returns the environment with which a process was started, NAME=VALUE each with a NUL at
// its end. While a process executes another program (execve), and from when it begins to end, its
// environment is empty.
func (d Dir) Environ(pid string) ([]byte, error) { return d.read(pid, "environ") }

// Variable returns the value of a variable in what Environ returns.
func Variable(environ []byte, name string) (value string, ok bool) {
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(v, []byte(name+"=")); ok {
			return string(value), true
		}
	}
	return "", false
}

// MessageQueueLimit returns a process's limit of bytes in message queues; 0 = it has none, or it
// cannot be read.
func (d Dir) MessageQueueLimit(pid int) uint64 {
	b, _ := d.read(strconv.Itoa(pid), "limits")
	_, rest, _ := strings.Cut(string(b), "Max msgqueue size")
	if fields := strings.Fields(rest); len(fields) > 0 {
		n, _ := strconv.ParseUint(fields[0], 10, 64) // 0 = unlimited
		return n
	}
	return 0
}

// Boot identifies the boot of the machine; within one, a process id and its start identify a
// process.
func (d Dir) Boot() string {
	b, _ := d.read("sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

func (d Dir) read(path ...string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.Join(path...)))
}
