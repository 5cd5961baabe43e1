package workerapi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func server(t *testing.T, socket string) *Server {
	t.Helper()
	s, err := New(Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSocketDirectoryCannotBeCreatedFirst: its owner could put a socket of his own there, and would
// receive the workers' tokens.
func TestSocketDirectoryCannotBeCreatedFirst(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	long := filepath.Join(tmp, strings.Repeat("d", 120), "agent.sock")
	one, two := server(t, long), server(t, long)
	if one.Path() == two.Path() || len(one.Path()) > maxPath {
		t.Errorf("paths %q and %q: can be guessed, or are too long", one.Path(), two.Path())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- one.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("it does not run")
	}
	if i, err := os.Stat(filepath.Dir(one.Path())); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", i.Mode(), err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(one.Path())); err == nil {
		t.Error("the directory is left")
	}
	// A directory that another process has created first is refused.
	if err := os.Mkdir(filepath.Dir(two.Path()), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := two.Run(canceled(t), nil); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("it serves in a directory of another user: %v", err)
	}
}

// running runs a server until the function that it returns is called.
func running(t *testing.T, s *Server) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestTheShortDirectoryIsRemoved when its agent was killed, by the next one with the same state
// folder, where those that look for the socket find which it is.
func TestTheShortDirectoryIsRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("XDG_RUNTIME_DIR", "")
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 120), "agent.sock")
	note := workerprotocol.SocketNote(long)
	killed, next := server(t, long), server(t, long)
	end := running(t, killed)
	noted, err := os.ReadFile(note)
	if err != nil || string(noted) != filepath.Dir(killed.Path()) {
		t.Errorf("the note says %q, %v", noted, err)
	}
	end()
	if err := errors.Join(os.Mkdir(filepath.Dir(killed.Path()), 0o700), os.WriteFile(note, noted, 0o600)); err != nil { // as SIGKILL leaves them
		t.Fatal(err)
	}
	end = running(t, next)
	if all, err := os.ReadDir(tmp); err != nil || len(all) != 1 || filepath.Join(tmp, all[0].Name()) != filepath.Dir(next.Path()) {
		t.Errorf("beside %s there are %v, %v", next.Path(), all, err)
	}
	end()
	if all, err := os.ReadDir(tmp); err != nil || len(all) != 0 {
		t.Errorf("at the end there are %v, %v", all, err)
	}
	if _, err := os.Stat(note); !os.IsNotExist(err) {
		t.Errorf("the note is left: %v", err)
	}
}

func TestWritableDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := private(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := server(t, filepath.Join(dir, "agent.sock")).Run(canceled(t), nil); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("got %v", err)
	}
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := private(dir); err != nil {
		t.Error(err)
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
