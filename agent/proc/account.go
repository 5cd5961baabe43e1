package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/spec"
)

// another reports whether a worker runs as another user than this process.
func another(who *worker.Account) bool {
	return who.Another(os.Geteuid())
}

// attributes returns how a worker's process begins: as the leader of its group, killed when its
// agent dies, as its user with no group of the agent's.
func attributes(who *worker.Account) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if who != nil && os.Geteuid() == 0 { // its groups may differ even if the user does not
		a.Credential = &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups}
	}
	return a
}

// harmless are the variables of the agent that workers of another user inherit, and prefixes of
// such: what a machine is like, nothing that belongs to the agent's user.
var harmless = []string{
	"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy",
	"LC_*", "CUDA_*", "NVIDIA_*", "NCCL_*", "ROCR_*", "HIP_*", "OMP_*", "MKL_*", "GLOO_*",
}

func isHarmless(name string) bool {
	for _, h := range harmless {
		if prefix, ok := strings.CutSuffix(h, "*"); name == h || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return exports(name) || spec.WorkerSetting(name)
}

// homeOf returns the directory of a worker whose job names none: the agent's own may be closed to
// another user.
func homeOf(dir string, who *worker.Account) string {
	if dir != "" || !another(who) {
		return dir
	}
	if i, err := os.Stat(who.Home); who.Home != "" && err == nil && i.IsDir() {
		return who.Home
	}
	return "/"
}

// asUser runs f with a user's access to files. It must be called on the locked thread: other
// threads keep theirs.
func asUser(who *worker.Account, f func() error) (err error) {
	if !another(who) {
		return f()
	}
	had, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("proc: groups: %w", err)
	}
	old := make([]uint32, len(had))
	for i, g := range had {
		old[i] = uint32(g) //nolint:gosec // it is the number of a group
	}
	if err := setGroups(who.Groups); err != nil {
		return fmt.Errorf("proc: groups of %s: %w", who.Name, err)
	}
	uid, _ := unix.SetfsuidRetUid(-1) // only reads it
	gid, _ := unix.SetfsgidRetGid(-1)
	_ = unix.Setfsgid(int(who.GID))
	_ = unix.Setfsuid(int(who.UID))
	defer func() {
		_ = unix.Setfsuid(uid)
		_ = unix.Setfsgid(gid)
		err = errors.Join(err, setGroups(old))
	}()
	if now, _ := unix.SetfsuidRetUid(-1); now != int(who.UID) {
		return fmt.Errorf("proc: the agent may not act as %s", who.Name)
	}
	return f()
}

// setGroups sets the supplementary groups of the calling thread alone.
func setGroups(groups []uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// deniedTo explains that a user may not execute a worker's program, or enter its directory; nil =
// this is not the reason.
func deniedTo(who *worker.Account, err error, command, dir string) error {
	switch {
	case who == nil || !errors.Is(err, fs.ErrPermission):
		return nil
	case errors.Is(err, unix.EPERM):
		return &StartError{ExitCode: 126, Detail: fmt.Sprintf("the agent may not start processes as user %s: it lacks the capabilities of root", who.Name)}
	}
	return &StartError{ExitCode: 126, Detail: fmt.Sprintf("user %s may not execute %s in %s: give it access to both", who.Name, command, dir)}
}
