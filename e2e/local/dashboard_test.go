package local

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/e2e/terminal"
)

// TestTheDashboardOfARunStays: in a terminal the page of a run that has failed can be looked at
// until Ctrl-C, and then the exit code is that of the run.
func TestTheDashboardOfARunStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user, tty := terminal.Open(t)
	cmd := exec.Command(bin("regroup"), withState(dir, []string{"run", "--dashboard", "--max-restarts", "0", "--", "sh", "-c", "exit 3"})...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1", "REGROUP_STATE_DIR="+filepath.Join(dir, "state"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // Ctrl-C reaches it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case <-ended:
		default:
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	var shown screen
	go func() { _, _ = io.Copy(&shown, user) }() // it ends with the terminal
	stays := regexp.MustCompile(`the dashboard stays until Ctrl-C: (\S+)`)
	eventually(t, patience, func() (bool, string) { return stays.Match(shown.bytes()), string(shown.bytes()) })
	if out := string(shown.bytes()); !strings.Contains(out, "failed") || strings.Index(out, "failed") > strings.Index(out, "stays") {
		t.Errorf("it should say first how the run has ended:\n%s", out)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	link := string(stays.FindSubmatch(shown.bytes())[1])
	answer, err := (&http.Client{Jar: jar}).Get(link)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("<title>Regroup")) {
		t.Errorf("%s: %s, %v\n%.500s", link, answer.Status, err, page)
	}
	if _, err := user.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	eventually(t, patience, func() (bool, string) { return len(ended) > 0, string(shown.bytes()) })
	<-ended
	ended <- nil
	if code := cmd.ProcessState.ExitCode(); code != 14 {
		t.Errorf("exit code %d, want 14\n%s", code, shown.bytes())
	}
}
