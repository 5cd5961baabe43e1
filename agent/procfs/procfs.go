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
	Ticks   uint64             // for which it has had a processor, see TicksPerSecond
	Pages   uint64             // of memory that it has in use
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
		State: f[0][0], Parent: f[1], Flags: number(9), Start: number(22), Ticks: number(14) + number(15), Pages: number(24), Pending: number(31), Status: syscall.WaitStatus(number(52)),
	}, true
}

// Process is Task for the first thread of a process.
func (d Dir) Process(pid int) (Task, bool) { return d.Task(strconv.Itoa(pid)) }

// TicksPerSecond is the unit of what the kernel tells of processor time: USER_HZ, which is the same
// on every architecture that Go knows.
const TicksPerSecond = 100

// ParentID is Parent as a number.
func (t Task) ParentID() int {
	n, _ := strconv.Atoi(t.Parent)
	return n
}

// Processes returns the ids of all processes that can be seen here.
func (d Dir) Processes() (all []int) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// Busy returns for how many ticks the processors of the machine have worked since it has started,
// all together, and how many processors there are. ok is false if that cannot be read.
func (d Dir) Busy() (ticks uint64, processors int, ok bool) {
	b, err := d.read("stat")
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			processors++
			continue
		}
		for i, field := range f[1:9] {
			if i == 3 || i == 4 { // idle, or idle because a disk is awaited
				continue
			}
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return 0, 0, false
			}
			ticks += n
		}
	}
	return ticks, processors, processors > 0
}

// Memory returns the memory of the machine in bytes, and what of it new processes can have without
// swapping; 0 = unknown.
func (d Dir) Memory() (total, available uint64) {
	b, _ := d.read("meminfo")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = n << 10
		case "MemAvailable:":
			available = n << 10
		}
	}
	return total, available
}

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
