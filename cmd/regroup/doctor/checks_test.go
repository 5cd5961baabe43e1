package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/jetstream"
)

func one(f finding) []finding { return []finding{f} }

func TestName(t *testing.T) {
	loopback, other := net.IPv4(127, 0, 1, 1), net.IPv4(192, 0, 2, 7)
	has(t, one(checkName(resolved{"node1", []net.IP{loopback, other}, nil, 0})), "host name", ok, "node1 is 127.0.1.1, 192.0.2.7")
	has(t, one(checkName(resolved{"node1", []net.IP{loopback, net.IPv6loopback}, nil, 0})), "host name", note, "127.0.1.1, ::1 only")
	has(t, one(checkName(resolved{"node1", []net.IP{other}, nil, 3 * time.Second})), "host name", note, "after 3.0s")
	has(t, one(checkName(resolved{"node1", nil, errors.New("no such host"), 0})), "host name", problem, "node1 does not resolve")
}

func TestInterfaces(t *testing.T) {
	up := map[string]bool{"lo": true, "eth0": true, "eth1": false, "docker0": true}
	for value, c := range map[string]struct {
		state state
		found string
	}{
		"":                            {ok, "none is named"},
		"GLOO_SOCKET_IFNAME=eth0":     {ok, "GLOO_SOCKET_IFNAME=eth0"},
		"GLOO_SOCKET_IFNAME=eth0,lo":  {ok, "eth0,lo"},
		"GLOO_SOCKET_IFNAME=ens5":     {problem, `"ens5" does not exist`},
		"TP_SOCKET_IFNAME=eth1":       {problem, "eth1 is down"},
		"NCCL_SOCKET_IFNAME=eth":      {ok, "=eth"},
		"NCCL_SOCKET_IFNAME==eth":     {problem, "selects no interface"},
		"NCCL_SOCKET_IFNAME==eth0":    {ok, "=eth0"},
		"NCCL_SOCKET_IFNAME=^docker":  {ok, "^docker"},
		"NCCL_SOCKET_IFNAME=ib":       {problem, "selects no interface"},
		"NCCL_SOCKET_IFNAME=^d,e,lo":  {problem, "selects no interface"},
		"NCCL_SOCKET_IFNAME=^=docker": {ok, "^=docker"},
	} {
		name, text, _ := strings.Cut(value, "=")
		getenv := func(n string) string {
			if n == name {
				return text
			}
			return ""
		}
		has(t, checkInterfaces(getenv, up), "interface", c.state, c.found)
	}
}

func TestPorts(t *testing.T) {
	used := func(port string) error {
		switch port {
		case "29500":
			return &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
		case "80":
			return syscall.EACCES
		}
		return nil
	}
	all := checkPorts("80", used)
	has(t, all, "port 29500", note, "another process")
	has(t, all, "port 29400", ok, "free")
	has(t, all, "port 80", note, "permission denied")
	has(t, one(checkPortRange("32768\t60999\n")), "port range", ok, "32768 to 60999")
	has(t, one(checkPortRange("60000 60999")), "port range", problem, "1000 ports")
	has(t, one(checkPortRange("")), "port range", ok, "unknown")
	has(t, one(checkAdvertised("192.0.2.7", func(string) error { return nil })), "advertised address", ok, "192.0.2.7")
	has(t, one(checkAdvertised("192.0.2.7", func(string) error { return syscall.EADDRNOTAVAIL })), "advertised address", problem, "cannot assign")
	has(t, one(checkClock(900*time.Millisecond, 0)), "clock", ok, "900ms ahead of that of the server")
	has(t, one(checkClock(-2*time.Millisecond, 5*time.Millisecond)), "clock", ok, "that of the server, to 5ms")
	has(t, one(checkClock(-2*time.Second, 5*time.Millisecond)), "clock", note, "2s behind that of the server")
	has(t, one(checkServer("", false, nil)), "server", ok, "none is configured")
	has(t, one(checkServer("", true, func() error { return nil })), "server", ok, "regroup up on this machine answers")
	has(t, one(checkServer("nats://a:1", false, func() error { return nil })), "server", ok, "nats://a:1 answers")
	has(t, one(checkServer("nats://a:1", false, func() error { return errors.New("refused") })), "server", problem, "refused")
	has(t, one(checkServer("nats://a:1", false, func() error { return fmt.Errorf("a: %w", jetstream.ErrRefused) })), "server", problem, "a: ")
}

func TestMemory(t *testing.T) {
	has(t, one(checkShm(space{8 * gib, 8 * gib}, nil)), "/dev/shm", ok, "8.0 GiB")
	has(t, one(checkShm(space{64 * mib, 64 * mib}, nil)), "/dev/shm", problem, "64 MiB, 64 MiB free: too little")
	has(t, one(checkShm(space{8 * gib, 10 * mib}, nil)), "/dev/shm", problem, "10 MiB free")
	has(t, one(checkShm(space{8 * gib, 500 * mib}, nil)), "/dev/shm", note, "500 MiB free")
	has(t, one(checkShm(space{}, syscall.ENOENT)), "/dev/shm", problem, "no such file")
	has(t, one(checkMemoryAccess("1\n", nil)), "process_vm_readv", ok, "allowed")
	has(t, one(checkMemoryAccess("", nil)), "process_vm_readv", ok, "allowed")
	has(t, one(checkMemoryAccess("2\n", nil)), "process_vm_readv", note, "ptrace_scope is 2")
	has(t, one(checkMemoryAccess("0", syscall.EPERM)), "process_vm_readv", note, "not permitted")
}

func TestLimits(t *testing.T) {
	good := checkLimits(limits{65536, unlimited, unlimited, unlimited}, true)
	for check, text := range map[string]string{"open files": "65536", "locked memory": "unlimited", "processes": "unlimited", "core files": "unlimited"} {
		has(t, good, check, ok, text)
	}
	bad := checkLimits(limits{256, 8 * mib, 100, 0}, true)
	has(t, bad, "open files", problem, "256")
	has(t, bad, "locked memory", problem, "8 MiB")
	has(t, bad, "processes", note, "100")
	has(t, bad, "core files", note, "none")
	has(t, checkLimits(limits{files: 1024, locked: 8 * mib}, false), "open files", note, "1024")
	has(t, checkLimits(limits{files: 1024, locked: 8 * mib}, false), "locked memory", ok, "8 MiB")
	has(t, one(checkFolder("/tmp", nil, space{free: 10 * gib})), "folder", ok, "/tmp is writable, 10.0 GiB")
	has(t, one(checkFolder("/tmp", nil, space{free: 500 * mib})), "folder", note, "500 MiB")
	has(t, one(checkFolder("/tmp", nil, space{free: mib})), "folder", problem, "1 MiB")
	has(t, one(checkFolder("/tmp", syscall.EROFS, space{free: 10 * gib})), "folder", problem, "read-only")
}

func TestHugePages(t *testing.T) {
	has(t, one(checkHugePages("always [madvise] never\n")), "huge pages", ok, "madvise")
	has(t, one(checkHugePages("[always] madvise never\n")), "huge pages", ok, "always")
	has(t, one(checkHugePages("always madvise [never]\n")), "huge pages", note, "never")
	has(t, one(checkHugePages("")), "huge pages", note, "never") // a kernel without them
}

func TestCgroup(t *testing.T) {
	files := map[string]string{
		"/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "1073741824\n", "/sys/fs/cgroup/memory.max": "",
		"/sys/fs/cgroup/a/b/cpu.max": "250000 100000\n", "/sys/fs/cgroup/a/cpu.max": "max 100000\n",
	}
	c := readCgroup("1:x:/y\n0::/a/b\n", func(file string) string { return files[file] })
	if c != (cgroup{memory: gib, cpus: 2.5}) {
		t.Fatalf("%+v", c)
	}
	all := checkCgroup(c, 8, "")
	has(t, all, "memory limit", note, "1.0 GiB")
	has(t, all, "cpu limit", note, "2.5 of 8 processors")
	if !strings.Contains(all[1].Fix, "OMP_NUM_THREADS=2,") {
		t.Error(all[1].Fix)
	}
	has(t, checkCgroup(c, 8, "1"), "cpu limit", ok, "OMP_NUM_THREADS=1")
	none := checkCgroup(readCgroup("4:memory:/x\n", func(string) string { return "1" }), 8, "")
	has(t, none, "memory limit", ok, "none")
	has(t, none, "cpu limit", ok, "none")
}

func TestGPUs(t *testing.T) {
	const driver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
	const open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86  Release Build\n"
	for _, c := range []struct {
		devices         int
		driver, visible string
		set             bool
		state           state
		found           string
	}{
		{0, "", "", false, ok, "none"},
		{0, "", "0", true, problem, "there is no GPU"},
		{0, "", "", true, ok, "none"},
		{0, driver, "", false, problem, "driver 550.54.15 is loaded"},
		{8, driver, "", false, ok, "8, driver 550.54.15"},
		{8, open, "0,7", true, ok, "driver 570.86; CUDA_VISIBLE_DEVICES=0,7"},
		{8, driver, "0,8", true, problem, "names GPU 8"},
		{8, driver, "", true, note, "hides them all"},
		{8, driver, "-1", true, note, "hides them all"},
		{8, driver, "GPU-8932f937", true, ok, "GPU-8932f937"},
	} {
		has(t, one(checkGPUs(c.devices, c.driver, c.visible, c.set)), "gpus", c.state, c.found)
	}
}

func TestEnvironment(t *testing.T) {
	has(t, checkEnvironment([]string{"PATH=/bin", "RANK=", "HOME=/root"}), "environment", ok, "no variable")
	has(t, checkEnvironment([]string{"MASTER_ADDR=a"}), "environment", note, "launcher: MASTER_ADDR")
	has(t, checkEnvironment([]string{"WORLD_SIZE=8", "RANK=3", "TORCHELASTIC_RUN_ID=x"}), "environment", problem, "RANK, TORCHELASTIC_RUN_ID, WORLD_SIZE")
	all := checkEnvironment([]string{"PET_NNODES=2", "PYTHONDONTWRITEBYTECODE=1"})
	has(t, all, "environment", note, "PET_NNODES=2")
	has(t, all, "environment", note, "PYTHONDONTWRITEBYTECODE")
}

// TestWrite: a line for each finding, what to do below it, and the worst of them.
func TestWrite(t *testing.T) {
	all := []finding{fine("a", "good"), {"b", note, "so so", "wait"}, {"c", problem, "bad \x1b[31m", "mend it"}, fine("d", "good")}
	var b bytes.Buffer
	if err := write(&b, screen.Palette{}, all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 9 || lines[1] != "note     b                  so so" || lines[2] != "         → wait" || strings.Contains(lines[3], "\x1b") || lines[7] != "1 problem, 1 note" {
		t.Errorf("%q", lines)
	}
	if worst(all) != problem || worst(all[:2]) != note || worst(all[:1]) != ok || worst(slices.Concat(all[2:], all[:2])) != problem {
		t.Error("the worst of them is not found")
	}
}

func TestUserOfJobs(t *testing.T) {
	has(t, one(checkUser(0, "")), "user of jobs", note, "root, unless")
	has(t, one(checkUser(0, "train")), "user of jobs", ok, "train")
	has(t, one(checkUser(1000, "")), "user of jobs", ok, "user 1000")
}
