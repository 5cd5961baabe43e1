package errorfile

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzErrorFile: whatever a worker leaves as its error file is read and removed, so that the next
// incarnation does not find it.
func FuzzErrorFile(f *testing.F) {
	f.Add([]byte(`{"message":"out of memory"}`))
	f.Add([]byte(`{"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"..."}}}`))
	f.Add([]byte(`{"message":`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "error.json")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, _ = read(path, "", nil)
		if _, err := os.Stat(path); err == nil {
			t.Fatal("the file is still there")
		}
	})
}
