package boot

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/regroup-io/regroup/e2e/terminal"
)

func modes(t *testing.T, tty *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// TestUntilKey: a key ends the context without a new line, others do not, and the terminal is as it
// was before.
func TestUntilKey(t *testing.T) {
	keys, tty := terminal.Open(t)
	before := modes(t, tty)
	ctx, restore := UntilKey(t.Context(), tty, "qQ")
	if m := modes(t, tty); m.Lflag&(unix.ICANON|unix.ECHO) != 0 || m.Lflag&unix.ISIG == 0 {
		t.Errorf("keys are kept for a line, or shown, or Ctrl-C is a key: %o", m.Lflag)
	}
	if _, err := keys.WriteString("x \n"); err != nil {
		t.Fatal(err)
	}
	for { // until they are read
		if n, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCINQ); err != nil || n == 0 {
			break
		}
		runtime.Gosched()
	}
	restore() // what is read has had its effect
	if errors.Is(context.Cause(ctx), ErrPressed) {
		t.Fatal("another key has ended it")
	}
	ctx, restore = UntilKey(t.Context(), tty, "qQ")
	if _, err := keys.WriteString("Q"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrPressed) {
		t.Errorf("it has ended because: %v", context.Cause(ctx))
	}
	restore()
	if modes(t, tty) != before {
		t.Error("the terminal is not as it was before")
	}

	ctx, restore = UntilKey(t.Context(), tty, "q")
	restore()
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), ErrPressed) || modes(t, tty) != before {
		t.Errorf("without a key: %v", context.Cause(ctx))
	}
}

// TestUntilKeyWithoutATerminal: what is piped in are no keys.
func TestUntilKeyWithoutATerminal(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(name, []byte("q"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	ctx, restore := UntilKey(t.Context(), in, "q")
	if ctx.Err() != nil {
		t.Errorf("it has ended: %v", context.Cause(ctx))
	}
	restore()
}
