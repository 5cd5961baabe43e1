package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// flip changes a byte of a file, counted from its end if at is negative.
func flip(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestVerify(t *testing.T) {
	d := open2(t, t.TempDir())
	write(t, d, image(1, size))
	n := image(1, size).Name
	if err := d.Verify(n); err != nil {
		t.Error(err)
	}
	if i, err := d.Stat(n); err != nil || i.Bytes < size || len(i.Tensors) != 1 || i.Files != 0 || time.Since(i.Written) > time.Hour {
		t.Errorf("%+v, %v", i, err)
	}
	flip(t, d.Path(n), size) // of the data
	if err := d.Verify(n); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a flipped bit of the data: %v", err)
	}
	if _, err := d.Stat(n); err != nil {
		t.Errorf("the header is intact: %v", err)
	}
	flip(t, d.Path(n), 0)
	if i, err := d.Stat(n); !errors.Is(err, ErrCorrupt) || i.Bytes < size {
		t.Errorf("a flipped bit of the header: %v, %d bytes", err, i.Bytes)
	}
}

// TestVerifyParts: each byte of parts counts, and so does a part that is not here.
func TestVerifyParts(t *testing.T) {
	d := open2(t, t.TempDir())
	s := setOf(1)
	if err := errors.Join(writeSet(t.Context(), d, s), finish(d, s)); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(s.Name); err != nil {
		t.Error(err)
	}
	if i, err := d.Stat(s.Name); err != nil || i.Files != 4 || i.Bytes < 1000*600*4 || len(i.Sharded) != 4 {
		t.Errorf("%+v, %v", i, err)
	}
	files, _ := filepath.Glob(filepath.Join(d.PartsPath(s), "*"))
	for _, path := range files {
		flip(t, path, -1)
		if err := d.Verify(s.Name); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", path, err)
		}
		flip(t, path, -1)
		aside := filepath.Join(t.TempDir(), "part")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		if err := d.Verify(s.Name); !errors.Is(err, ErrElsewhere) {
			t.Errorf("without %s: %v", path, err)
		}
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPrune: checkpoints that are damaged, of which parts are gone, or that a rank may be writing,
// do not count.
func TestPrune(t *testing.T) {
	writer, err := Open(t.TempDir(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(6) {
		s := setOf(step)
		if err := writeSet(t.Context(), writer, s); err != nil {
			t.Fatal(err)
		}
		if step == 5 {
			continue // unfinished
		}
		if err := writer.FinishParts(s); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(writer.PartsPath(setOf(3)), "*"))
	flip(t, files[0], -1)
	d := open2(t, writer.path)
	parts, _ := filepath.Glob(filepath.Join(writer.PartsPath(setOf(4)), "*"))
	aside := filepath.Join(t.TempDir(), "part")
	if err := os.Rename(parts[0], aside); err != nil {
		t.Fatal(err)
	}
	if removed, err := d.Prune(); err != nil || !slices.Equal(removed, []Name{setOf(0).Name}) {
		t.Errorf("without a part of step 4: removed %v, %v", removed, err)
	}
	if err := os.Rename(aside, parts[0]); err != nil {
		t.Fatal(err)
	}
	removed, err := d.Prune()
	if want := []Name{setOf(1).Name}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %v, %v; want %v", removed, err, want)
	}
	left, err := d.List()
	if want := []Name{setOf(5).Name, setOf(4).Name, setOf(3).Name, setOf(2).Name}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v, %v; want %v", left, err, want)
	}
	if folders, err := d.setFolders(); err != nil || len(folders) != 4 {
		t.Errorf("%d folders of parts are left, %v", len(folders), err)
	}
	if removed, err := d.Prune(); err != nil || len(removed) > 0 {
		t.Errorf("again: removed %v, %v", removed, err)
	}
}
