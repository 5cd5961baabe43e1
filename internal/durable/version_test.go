package durable

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAChangeIsFound, however it is made; and what changed just now counts as changed.
func TestAChangeIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if VersionOf(path).Same(VersionOf(path)) {
		t.Error("there is no file")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// later is the version as if it had been looked at a minute later.
	later := func() Version {
		v := VersionOf(path)
		v.at = v.at.Add(time.Minute)
		return v
	}
	write("one")
	if VersionOf(path).Same(VersionOf(path)) {
		t.Error("it may have changed within the resolution of its time")
	}
	first := later()
	if !first.Same(VersionOf(path)) {
		t.Error("it has not changed")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"its content": func() error { return os.WriteFile(path, []byte("two"), 0o600) },
		"its length":  func() error { return os.WriteFile(path, []byte("longer"), 0o600) },
		"the file":    func() error { return WriteFile(path, []byte("two")) },
		"its content, with the time of before": func() error {
			if err := os.WriteFile(path, []byte("six"), 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		},
	} {
		before := later()
		// The clock of the kernel must go on for a time to differ.
		for deadline := time.Now().Add(10 * time.Second); ; {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if !before.Same(VersionOf(path)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s has changed", what)
			}
		}
	}
}
