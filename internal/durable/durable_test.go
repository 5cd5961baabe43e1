package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAFileIsReplacedAsAWhole, with mode 0600 whatever it had, and nothing else is left beside it.
func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("of before, and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if err := WriteFile(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "new" {
		t.Errorf("%q %v", b, err)
	}
	b := make([]byte, 100)
	if n, err := before.Read(b); err != nil || string(b[:n]) != "of before, and longer" {
		t.Errorf("who reads the old one gets %q, %v", b[:n], err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "taken"), nil); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("after a failure: %v %v", all, err)
	}
	if err := WriteFile(filepath.Join(dir, "nowhere", "file"), nil); err == nil {
		t.Error("there is no such directory")
	}
}
