//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyTheUserHasAccess: whatever the umask would permit.
func TestOnlyTheUserHasAccess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "job", "checkpoints")
	f := open2(t, dir)
	i := image(1, 100)
	write(t, f, i)
	for path, want := range map[string]os.FileMode{filepath.Dir(dir): 0o700, dir: 0o700, f.Path(i.Name): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

// TestWhatOthersMayHaveWrittenIsRefused: it stays on the disk, and is not taken for damaged.
func TestWhatOthersMayHaveWrittenIsRefused(t *testing.T) {
	type trial struct {
		change func(t *testing.T, path string)
		want   string
	}
	trials := map[string]trial{
		"writable by all":      {func(t *testing.T, path string) { mode(t, path, 0o602) }, "chmod go-w"},
		"writable by a group":  {func(t *testing.T, path string) { mode(t, path, 0o660) }, "chmod go-w"},
		"readable by a group":  {func(t *testing.T, path string) { mode(t, path, 0o640) }, ""},
		"a link to a safe one": {relink, ""},
	}
	if os.Geteuid() == 0 { // nobody else can give a file away
		trials["another user's"] = trial{func(t *testing.T, path string) { owner(t, path, 12345) }, "user 12345"}
	}
	for name, c := range trials {
		t.Run(name, func(t *testing.T) {
			f := open2(t, t.TempDir())
			i := image(1, 100)
			write(t, f, i)
			c.change(t, f.Path(i.Name))
			_, err := f.Read(i.Name, i.Layout, make([]byte, 100))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case c.want != "" && (!errors.Is(err, ErrUntrusted) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want ErrUntrusted with %q", err, c.want)
			}
		})
	}
}

func mode(t *testing.T, path string, m os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, m); err != nil {
		t.Fatal(err)
	}
}

func owner(t *testing.T, path string, uid int) {
	t.Helper()
	if err := os.Chown(path, uid, -1); err != nil {
		t.Fatal(err)
	}
}

func relink(t *testing.T, path string) {
	t.Helper()
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Fatal(err)
	}
}
