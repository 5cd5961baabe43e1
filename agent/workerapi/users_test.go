package workerapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestASocketForAnotherUser: nobody else may use it, or put anything in its place, and who uses it
// cannot take the node away from the others.
func TestASocketForAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives sockets to other users: run it as root, as those of the network")
	}
	r := newRig(t, filepath.Join(t.TempDir(), "agent.sock"), time.Second)
	socket, files, err := r.s.Open(54321, 54322)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := r.s.Open(54321, 54322); err != nil || again != socket {
		t.Errorf("the second time it is %s, %v", again, err)
	}
	if other, _, err := r.s.Open(54324, 54322); err != nil || other == socket {
		t.Errorf("of another user it is %s, %v", other, err)
	}
	own := filepath.Dir(socket)
	for path, want := range map[string]struct {
		mode os.FileMode
		uid  uint32
	}{socket: {0o600, 54321}, files: {0o700, 54321}, own: {0o711, 0}, filepath.Dir(own): {0o711, 0}} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || info.Mode().Perm() != want.mode || st.Uid != want.uid {
			t.Errorf("%s is %v of user %d, want %v of user %d", path, info.Mode(), st.Uid, want.mode, want.uid)
		}
	}
	r.s.Admit("token", "w")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	post := func(path, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer token")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	if code := post("/v1/report", `{"generation":1,"step":7,"samples":0}`); code != http.StatusNoContent {
		t.Errorf("a report is answered with %d", code)
	}
	if got := <-r.calls; got != "report w 7" {
		t.Errorf("the agent hears %q", got)
	}
	if code := post("/v1/preempt", `{}`); code != http.StatusForbidden {
		t.Errorf("a notice of preemption is answered with %d", code)
	}
	if code := post("/v1/environment", `{}`); code != http.StatusForbidden {
		t.Errorf("an environment is answered with %d", code)
	}
	r.stop()
	if _, err := os.Stat(filepath.Dir(own)); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestTheDirectoryOfAKilledAgentIsRemoved: by the next one that needs one.
func TestTheDirectoryOfAKilledAgentIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test gives sockets to other users: run it as root, as those of the network")
	}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	killed, next := server(t, socket), server(t, socket)
	left, _, err := killed.Open(54321, 54322)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range killed.users.queued {
		defer func() { _ = l.Close() }()
	}
	made, _, err := next.Open(54321, 54322)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(left))); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", left, err)
	}
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
	if err := next.Run(canceled(t), nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(next.noteFile()); !os.IsNotExist(err) {
		t.Errorf("the note is left: %v", err)
	}
}
