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
	long := time.Now().Add(-time.Minute)
	write := func(text string, at time.Time) Version {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return VersionOf(path)
	}
	first := write("one", long)
	if !first.Same(VersionOf(path)) {
		t.Error("it has not changed")
	}
	if first.Same(write("longer", long)) {
		t.Error("its length has changed")
	}
	first = write("one", long)
	if first.Same(write("two", long.Add(time.Millisecond))) {
		t.Error("its time has changed")
	}
	if new := write("two", time.Now()); new.Same(VersionOf(path)) {
		t.Error("it may have changed within the resolution of its time")
	}
	first = write("one", long)
	if err := WriteFile(path, []byte("two")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, long, long); err != nil {
		t.Fatal(err)
	}
	if first.Same(VersionOf(path)) {
		t.Error("it is another file")
	}
}
