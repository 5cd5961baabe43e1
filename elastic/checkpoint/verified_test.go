package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// steps lists the checkpoints of a directory, the newest first.
func steps(t *testing.T, d *Dir) (steps []uint64) {
	t.Helper()
	all, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		steps = append(steps, n.Step)
	}
	return steps
}

// TestVerifiedOnesAreKept besides the newest, before newer ones that are not, and no mark is left
// of one that is removed.
func TestVerifiedOnesAreKept(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, 3)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(step uint64) {
		t.Helper()
		if err := d.MarkVerified(Name{Generation: 2, Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	verify(100) // nothing was written yet
	for _, c := range []struct {
		step, verified uint64
		kept           []uint64
	}{
		{10, 0, []uint64{10}},
		{20, 25, []uint64{20, 10}}, // both are verified
		{30, 0, []uint64{30, 20, 10}},
		{40, 0, []uint64{40, 20, 10}},
		{50, 55, []uint64{50, 20, 10}},
		{60, 0, []uint64{60, 50, 20}},
	} {
		write(t, d, image(c.step, size))
		if got := steps(t, d); !slices.Equal(got, c.kept) {
			t.Errorf("after %d there are %v, want %v", c.step, got, c.kept)
		}
		if c.verified > 0 {
			verify(c.verified)
		}
	}
	for step, want := range map[uint64]bool{60: false, 50: true, 20: true} {
		if info, err := d.Stat(image(step, 0).Name); err != nil || info.Verified != want {
			t.Errorf("%d: verified %t, want %t (%v)", step, info.Verified, want, err)
		}
	}
	if marks, _ := filepath.Glob(filepath.Join(path, "*"+suffixVerified)); len(marks) != 2 {
		t.Errorf("the marks are %v", marks)
	}
	one, err := Open(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := one.Prune(); err != nil || len(removed) != 1 || removed[0].Step != 20 {
		t.Errorf("pruned %v, %v", removed, err)
	}
	write(t, d, image(70, size))
	write(t, d, image(80, size)) // 70 is not verified, but there are not enough that are
	if got := steps(t, d); !slices.Equal(got, []uint64{80, 70, 50}) {
		t.Errorf("in the end there are %v", got)
	}
}

// TestDistrustedOnesAreRemoved, of this run, also one that is being written, and by a Dir that
// writes its first one later.
func TestDistrustedOnesAreRemoved(t *testing.T) {
	path := t.TempDir()
	d, err := Open(path, 9)
	if err != nil {
		t.Fatal(err)
	}
	of := func(run, generation, step uint64) Image {
		i := image(step, size)
		i.Name.Run, i.Name.Generation = run, generation
		return i
	}
	for _, i := range []Image{of(1, 9, 100), of(2, 1, 110), of(2, 1, 120), of(2, 2, 130)} {
		write(t, d, i)
	}
	later, err := Open(path, 9) // of a worker that has written nothing
	if err != nil {
		t.Fatal(err)
	}
	after, until := Name{Generation: 1, Step: 115}, Name{Generation: 2, Step: 140}
	if err := later.Distrust(after, until); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, d); !slices.Equal(got, []uint64{130, 120, 110, 100}) {
		t.Errorf("one that has not written has left %v", got)
	}
	write(t, later, of(2, 3, 116))
	if got := steps(t, d); !slices.Equal(got, []uint64{116, 110, 100}) {
		t.Errorf("there are %v", got)
	}

	write(t, d, of(2, 3, 117))
	d.fault = func(op, _ string) error { // while 118 is written
		if op == "sync" {
			d.fault = func(string, string) error { return nil }
			return d.Distrust(Name{Generation: 3, Step: 116}, Name{Generation: 3, Step: 118})
		}
		return nil
	}
	if err := d.Write(t.Context(), of(2, 3, 118)); err == nil || !strings.Contains(err.Error(), "a rank has computed wrongly before it") {
		t.Errorf("it was written: %v", err)
	}
	write(t, d, of(2, 4, 117))
	if got := steps(t, d); !slices.Equal(got, []uint64{117, 116, 110, 100}) {
		t.Errorf("in the end there are %v", got)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 4 {
		t.Errorf("left are %v (%v)", left, err)
	}
}
