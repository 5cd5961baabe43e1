package local

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/e2e/terminal"
)

// TestTopEndsWithQ: regroup top in a terminal ends when q is pressed, as others of its kind, and
// the terminal is as before.
func TestTopEndsWithQ(t *testing.T) {
	dir := t.TempDir()
	up := begin(t, dir, "up", "--slots", "1")
	up.prints("regroup is up")
	for keys, want := range map[string]int{"xq": 0, "\x03": 130} { // 0x03 is Ctrl-C
		user, tty := terminal.Open(t)
		before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(bin("regroup"), withState(dir, []string{"top"})...)
		cmd.Env = append(os.Environ(), "TERM=xterm", "REGROUP_STATE_DIR="+filepath.Join(dir, "state"))
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C reaches it
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var shown screen
		go func() { _, _ = io.Copy(&shown, user) }() // it ends with the terminal
		eventually(t, patience, func() (bool, string) {
			return bytes.Contains(shown.bytes(), []byte("q ends it")), "a frame that names the key: " + string(shown.bytes())
		})
		if _, err := user.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Fatalf("%q does not end it:\n%s", keys, shown.bytes())
		}
		after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != want || *after != *before {
			t.Errorf("after %q it exits %d, want %d; the terminal is as before: %v\n%s", keys, code, want, *after == *before, shown.bytes())
		}
	}
}

// screen keeps what a terminal has shown.
type screen struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *screen) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.all.Bytes())
}
