package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestErrorFile: what a program may put where torch leaves its error, and what is said of it. None of it may hold the agent up.
func TestErrorFile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"message":"another user's"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, c := range map[string]struct {
		put  func(path string) error
		says string
	}{
		"nothing":    {func(string) error { return nil }, ""},
		"flat":       {write(`{"message":"out of memory"}`), "out of memory"},
		"deep":       {write(`{"message":{"message":"ValueError: x","extraInfo":{}}}`), "ValueError: x"},
		"a long one": {write(`{"message":{"message":"ValueError: ` + strings.Repeat("é\\n", 100_000) + `","extraInfo":{}}}`), "ValueError: é\né"},
		"a fifo":     {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file"},
		"a link":     {func(path string) error { return os.Symlink(secret, path) }, "is a link"},
		"a folder":   {func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"six GiB of nothing": {func(path string) error {
			if err := write("")(path); err != nil {
				return err
			}
			return os.Truncate(path, 6<<30)
		}, "limit error-file: 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "error.json")
			if err := c.put(path); err != nil {
				t.Fatal(err)
			}
			got := errorFile(path)
			if name == "a long one" && (!strings.HasSuffix(got, "bytes, 65536 were read]") || len(got) > 70_000) {
				t.Errorf("%d bytes, the end is %q", len(got), got[len(got)-60:])
			}
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("it says %q, want %q", got, c.says)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("it is still there")
			}
		})
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error("what the link named is gone:", err)
	}
	if int64(events.LimitErrors.Most) != 64<<10 {
		t.Error("the limit is another one than documented")
	}
}
