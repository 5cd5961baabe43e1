package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/serve"
)

// machine reads what the checks judge from this machine.
type machine struct {
	env       command.Env
	config    *boot.Config
	advertise func() string // the address under which other nodes reach this one
	version   string
	python    string // --python
}

func (m machine) check(ctx context.Context) []finding {
	python := cmp.Or(m.python, m.env.Getenv("PYTHON_EXEC"), "python3")
	all := checkPython(python, runProbe(ctx, python), m.version)
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	all = append(all, checkName(resolve(ctx, host)))
	all = append(all, checkInterfaces(m.env.Getenv, interfaces())...)
	var config net.ListenConfig
	listen := func(address string) error {
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return l.Close()
	}
	all = append(all, checkAdvertised(m.advertise(), func(host string) error { return listen(net.JoinHostPort(host, "0")) }))
	all = append(all, checkPorts(m.env.Getenv("MASTER_PORT"), func(port string) error { return listen(":" + port) })...)
	all = append(all, checkPortRange(read("/proc/sys/net/ipv4/ip_local_port_range")))
	s, err := spaceOf("/dev/shm")
	all = append(all, checkShm(s, err))
	all = append(all, checkLimits(softLimits(), len(glob("/sys/class/infiniband/*")) > 0)...)
	for _, path := range []string{os.TempDir(), m.config.StateDir} {
		all = append(all, checkFolderAt(path))
	}
	all = append(all, checkMemoryAccess(read("/proc/sys/kernel/yama/ptrace_scope"), readOwnMemory()))
	all = append(all, checkHugePages(read("/sys/kernel/mm/transparent_hugepage/enabled")))
	all = append(all, checkCgroup(readCgroup(read("/proc/self/cgroup"), read), runtime.NumCPU(), m.env.Getenv("OMP_NUM_THREADS"))...)
	all = append(all, checkUser(os.Geteuid(), m.env.Getenv("REGROUP_AGENT_DEFAULT_USER")))
	visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	all = append(all, checkGPUs(len(glob("/dev/nvidia[0-9]*")), read("/proc/driver/nvidia/version"), visible, set))
	all = append(all, checkEnvironment(os.Environ())...)
	var clock []finding // of a server that answers
	all = append(all, checkServer(m.config.Server, serve.Shared(*m.config), func() (err error) {
		clock, err = m.connect(ctx)
		return err
	}))
	return append(all, clock...)
}

// connect connects to the server, and compares this clock with its.
func (m machine) connect(ctx context.Context) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	servers, done, err := m.env.Connect(ctx, serverLimit, func(string) {})
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	defer done()
	asked := time.Now()
	theirs, err := servers[0].Ports.Clock.Now(ctx)
	if err != nil {
		return []finding{fine("clock", "unknown beside that of the server: %v", err)}, nil
	}
	now := time.Now()
	half := now.Sub(asked) / 2 // theirs counts as that of the question
	return []finding{checkClock(now.Sub(theirs)+half, half)}, nil
}

// interfaces returns whether each interface is up.
func interfaces() map[string]bool {
	up := map[string]bool{}
	all, err := net.Interfaces()
	if err != nil {
		return up
	}
	for _, i := range all {
		up[i.Name] = i.Flags&net.FlagUp != 0
	}
	return up
}

// read returns the content of a file, empty if there is none.
func read(path string) string {
	b, err := os.ReadFile(path) //nolint:gosec // the paths are constants, and those of this process's control group
	if err != nil {
		return ""
	}
	return string(b)
}

func glob(pattern string) []string {
	found, _ := filepath.Glob(pattern) // the patterns are well-formed
	return found
}

func spaceOf(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, fmt.Errorf("%s: %w", path, err)
	}
	block := uint64(max(s.Bsize, 0)) //nolint:gosec // it is not negative
	return space{total: s.Blocks * block, free: s.Bavail * block}, nil
}

func softLimits() limits {
	of := func(resource int) uint64 {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil {
			return unlimited
		}
		return l.Cur
	}
	return limits{files: of(unix.RLIMIT_NOFILE), locked: of(unix.RLIMIT_MEMLOCK), processes: of(unix.RLIMIT_NPROC), core: of(unix.RLIMIT_CORE)}
}

// checkFolderAt tries to write into a folder, or into the nearest one above it that exists.
func checkFolderAt(path string) finding {
	at := path
	for {
		if _, err := os.Stat(at); err == nil || filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	f, err := os.CreateTemp(at, ".regroup-doctor-")
	if err == nil {
		_, err = f.Write([]byte("x"))
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	s, statErr := spaceOf(at)
	return checkFolder(path, cmp.Or(err, statErr), s)
}

// readOwnMemory tries process_vm_readv, which system call filters may refuse.
func readOwnMemory() error {
	from, to := [1]byte{1}, [1]byte{}
	local := []unix.Iovec{{Base: &to[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}} //nolint:gosec // the address is what the call takes
	if _, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0); err != nil {
		return fmt.Errorf("process_vm_readv: %w", err)
	}
	runtime.KeepAlive(&from)
	return nil
}
