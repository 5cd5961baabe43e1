package boot

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/identity"
)

func token(t *testing.T) string {
	t.Helper()
	d, err := identity.Init(filepath.Join(t.TempDir(), "auth"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(access.Identity{Role: access.RoleAgent, Name: "node-a", Node: "node-a"}, 0); err != nil {
		t.Fatal(err)
	}
	text, err := d.JoinToken("node-a", "nats://127.0.0.1:4222")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestATokenComesFromWhereASettingSays: from the setting itself, a file, or standard input.
func TestATokenComesFromWhereASettingSays(t *testing.T) {
	text := token(t)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for setting, in := range map[string]string{text: "", "@" + file: "", "-": text + "\n"} {
		if j, _, err := ReadToken(setting, strings.NewReader(in)); err != nil || j.User != "node-a" {
			t.Errorf("%.10s: %s, %v", setting, j.User, err)
		}
	}
	for setting, message := range map[string]string{
		"@/no/such": "/no/such", "-": "is no join token", "@": "open", text[:900]: "incomplete or damaged",
	} {
		if _, _, err := ReadToken(setting, strings.NewReader("")); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), message) {
			t.Errorf("%.10s: %v, want %q", setting, err, message)
		}
	}
}

// TestATokenOnATerminalEndsWithItsLine: nothing is read after it, and of what is none only the
// first line.
func TestATokenOnATerminalEndsWithItsLine(t *testing.T) {
	text := token(t)
	for in, ok := range map[string]bool{
		"\n" + text[:700] + "\n" + text[700:] + "\n": true,
		"rg_of-a-gateway\n":                          false,
	} {
		r, w := io.Pipe()
		written := make(chan error, 1)
		go func() {
			_, err := io.WriteString(w, in)
			written <- err
		}()
		if _, got, err := ReadToken("-", r); (err == nil) != ok || ok && got != text {
			t.Errorf("%.10q: %v", in, err)
		}
		_ = r.Close()
		<-written
	}
}

// TestAKeptTokenIsItsOwnersAlone, and what was unpacked from it is written again if it is gone or
// others can read it.
func TestAKeptTokenIsItsOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agents", "node-a", "join")
	if _, err := LoadToken(dir); errcode.Of(err) != errcode.NotFound {
		t.Errorf("nothing is kept: %v", err)
	}
	kept, err := KeepToken(dir, token(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(kept.Creds, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(kept.TLSCA); err != nil {
		t.Fatal(err)
	}
	again, err := LoadToken(dir)
	if err != nil || again.Servers != "nats://127.0.0.1:4222" || again.Creds != kept.Creds {
		t.Errorf("%s %s, %v", again.Servers, again.Creds, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, %v, want 3", len(files), err)
	}
	for _, f := range files {
		if i, err := f.Info(); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), i.Mode(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte("rgjoin1_half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadToken(dir); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), dir) {
		t.Errorf("a damaged file: %v, want its path", err)
	}
}
