package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// space is the size of a file system and what is free of it.
type space struct{ total, free uint64 }

// checkShm judges /dev/shm.
func checkShm(s space, err error) finding {
	const fix = "containers: docker run --ipc=host, or --shm-size=8g; Kubernetes: an emptyDir of medium Memory at /dev/shm; else: mount -o remount,size=8G /dev/shm"
	found := fmt.Sprintf("%s, %s free", screen.Bytes(s.total), screen.Bytes(s.free))
	switch {
	case err != nil:
		return finding{"/dev/shm", problem, err.Error(), "mount -t tmpfs tmpfs /dev/shm"}
	case s.total <= 64*mib:
		return finding{"/dev/shm", problem, found + ": too little for the workers of a DataLoader and for ranks on one machine (Bus error, or No space left on device)", fix}
	case s.free < 256*mib:
		return finding{"/dev/shm", problem, found, "remove what ended programs have left: ls -la /dev/shm; " + fix}
	case s.free < gib:
		return finding{"/dev/shm", note, found, fix}
	}
	return fine("/dev/shm", "%s", found)
}

// unlimited is the value of a limit that does not limit.
const unlimited = ^uint64(0)

// limits are the soft limits of this process.
type limits struct{ files, locked, processes, core uint64 }

// checkLimits judges them. rdma = this machine has network adapters that need locked memory.
func checkLimits(l limits, rdma bool) (all []finding) {
	add := func(check string, s state, found, fix string) {
		all = append(all, finding{check, s, found, fix})
	}
	text := func(n uint64) string {
		if n == unlimited {
			return "unlimited"
		}
		return strconv.FormatUint(n, 10)
	}
	bytes := func(n uint64) string {
		if n == unlimited {
			return "unlimited"
		}
		return screen.Bytes(n)
	}
	switch {
	case l.files < 1024:
		add("open files", problem, text(l.files), "ulimit -n 65536 (LimitNOFILE=, or --ulimit nofile=65536 of docker)")
	case l.files < 4096:
		add("open files", note, text(l.files)+": many ranks and DataLoader workers need more", "ulimit -n 65536 (LimitNOFILE=, or --ulimit nofile=65536 of docker)")
	default:
		all = append(all, fine("open files", "%s", text(l.files)))
	}
	if rdma && l.locked != unlimited {
		add("locked memory", problem, bytes(l.locked)+", and NCCL registers memory with the RDMA adapters of this machine", "ulimit -l unlimited (LimitMEMLOCK=infinity, or --ulimit memlock=-1 of docker)")
	} else {
		all = append(all, fine("locked memory", "%s", bytes(l.locked)))
	}
	if l.processes < 4096 {
		add("processes", note, text(l.processes)+" processes and threads of this user", "ulimit -u 65536 (LimitNPROC=, TasksMax=)")
	} else {
		all = append(all, fine("processes", "%s", text(l.processes)))
	}
	if l.core == 0 {
		add("core files", note, "none is written when a worker crashes in native code", "to find such a crash: ulimit -c unlimited")
	} else {
		all = append(all, fine("core files", "up to %s", bytes(l.core)))
	}
	return all
}

// checkFolder judges a folder for data: writable is the result of an attempt.
func checkFolder(path string, writable error, s space) finding {
	switch {
	case writable != nil:
		return finding{"folder", problem, writable.Error(), "make it writable, or name another: TMPDIR, --state-dir (REGROUP_STATE_DIR)"}
	case s.free < 100*mib:
		return finding{"folder", problem, fmt.Sprintf("%s has %s free", path, screen.Bytes(s.free)), "free space, or name another: TMPDIR, --state-dir (REGROUP_STATE_DIR)"}
	case s.free < gib:
		return finding{"folder", note, fmt.Sprintf("%s has %s free", path, screen.Bytes(s.free)), "logs and checkpoints may fill it: free space, or name another: TMPDIR, --state-dir (REGROUP_STATE_DIR)"}
	}
	return fine("folder", "%s is writable, %s free", path, screen.Bytes(s.free))
}

// checkMemoryAccess judges whether ranks of one machine can read each other's memory. scope is the
// content of Yama's ptrace_scope, empty without Yama; read is the result of an attempt.
func checkMemoryAccess(scope string, read error) finding {
	const check = "process_vm_readv"
	scope = strings.TrimSpace(scope)
	n, err := strconv.Atoi(scope)
	switch {
	case read != nil:
		return finding{check, note, read.Error() + ": ranks of this machine copy through shared memory, which is slower", "containers: docker run --cap-add SYS_PTRACE, or a newer seccomp profile"}
	case err == nil && n > 1:
		return finding{check, note, "ptrace_scope is " + scope + ": ranks of this machine copy through shared memory, which is slower", "sysctl -w kernel.yama.ptrace_scope=1"}
	}
	return fine(check, "allowed")
}

// checkHugePages judges the setting of transparent huge pages, the content of their file enabled.
func checkHugePages(setting string) finding {
	const check = "huge pages"
	for _, word := range strings.Fields(setting) {
		if chosen, is := strings.CutPrefix(word, "["); is {
			if chosen = strings.TrimSuffix(chosen, "]"); chosen != "never" {
				return fine(check, "%s", chosen)
			}
		}
	}
	return finding{
		check, note, "never: a worker that was killed counts as dead only when Linux has taken its memory back, some 70 ms for each GiB",
		"echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (transparent_hugepage=madvise of the kernel)",
	}
}

// cgroup is what a control group of version 2 allows.
type cgroup struct {
	memory uint64  // bytes; 0 = no limit
	cpus   float64 // 0 = no limit
}

// readCgroup reads the limits of a group and of those above it. path is that of /proc/self/cgroup.
func readCgroup(self string, read func(file string) string) (c cgroup) {
	_, path, found := strings.Cut(self, "0::")
	if !found {
		return c
	}
	path, _, _ = strings.Cut(path, "\n")
	for path = strings.TrimRight(path, "/"); ; path = path[:max(0, strings.LastIndexByte(path, '/'))] {
		if n, err := strconv.ParseUint(strings.TrimSpace(read("/sys/fs/cgroup"+path+"/memory.max")), 10, 64); err == nil && (c.memory == 0 || n < c.memory) {
			c.memory = n
		}
		if f := strings.Fields(read("/sys/fs/cgroup" + path + "/cpu.max")); len(f) == 2 {
			quota, err1 := strconv.ParseFloat(f[0], 64)
			period, err2 := strconv.ParseFloat(f[1], 64)
			if err1 == nil && err2 == nil && period > 0 && (c.cpus == 0 || quota/period < c.cpus) {
				c.cpus = quota / period
			}
		}
		if path == "" {
			return c
		}
	}
}

// checkCgroup judges these limits on a machine with a number of processors.
func checkCgroup(c cgroup, processors int, threads string) []finding {
	memory, cpu := fine("memory limit", "none"), fine("cpu limit", "none")
	if c.memory > 0 {
		memory = fine("memory limit", "%s", screen.Bytes(c.memory))
		if c.memory < 2*gib {
			memory = finding{"memory limit", note, screen.Bytes(c.memory) + ": each rank with torch needs about 500 MiB before its model", "raise the limit of the container: docker run --memory, resources.limits.memory"}
		}
	}
	if c.cpus > 0 && c.cpus < float64(processors) {
		cpu = fine("cpu limit", "%.1f of %d processors, OMP_NUM_THREADS=%s", c.cpus, processors, threads)
		if threads == "" {
			cpu.State, cpu.Found = note, fmt.Sprintf("%.1f of %d processors: torch starts a thread for each of them, and the group is paused when it has used its share", c.cpus, processors)
			cpu.Fix = fmt.Sprintf("export OMP_NUM_THREADS=%d, divided by the ranks of this machine", max(1, int(c.cpus)))
		}
	}
	return []finding{memory, cpu}
}
