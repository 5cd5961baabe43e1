package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

var errDead = errors.New("this process is dead")

// disk is a dir on a machine that loses power: what was written and not flushed may be gone, in
// part or all of it, and so may a new name that was not flushed.
type disk struct {
	at      int  // the change before which the power fails, from 0
	careful bool // flushing works
	n       int
	rng     *rand.Rand
	dirty   map[string]bool // files with content that was not flushed
	renamed map[string]bool // names, likewise: what they were before
}

func (d *disk) fault(op, path string) error {
	if d.n++; d.n > d.at {
		return errDead
	}
	switch op {
	case "write":
		d.dirty[path] = true
	case "sync":
		if d.careful {
			delete(d.dirty, path)
		}
	case "rename":
		d.renamed[path] = true
	case "sync dir":
		if d.careful {
			clear(d.renamed)
		}
	}
	return nil
}

// fail loses what was not flushed. to is where the files were renamed to.
func (d *disk) fail(t *testing.T, to string) {
	t.Helper()
	lose := func(path string) {
		info, err := os.Stat(path)
		if err != nil {
			return
		}
		if err := os.Truncate(path, d.rng.Int64N(info.Size()+1)); err != nil {
			t.Fatal(err)
		}
		if d.rng.IntN(2) == 0 { // the length was flushed, the content was not
			if err := os.Truncate(path, info.Size()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path := range d.dirty {
		lose(path)
		if d.renamed[path] {
			lose(to)
		}
	}
	for path := range d.renamed {
		if d.rng.IntN(2) == 0 {
			_ = os.Rename(to, path) // the new name was not flushed
		}
	}
}

// crash writes three checkpoints, the last of which is cut off at one of its changes of the disk,
// and tells what is found afterwards.
func crash(t *testing.T, at int, seed uint64, careful bool) (n Name, found, died bool) {
	t.Helper()
	dir := t.TempDir()
	f := open2(t, dir)
	write(t, f, image(1, size))
	write(t, f, image(2, size))
	d := &disk{at: at, careful: careful, rng: rand.New(rand.NewPCG(seed, uint64(at))), dirty: map[string]bool{}, renamed: map[string]bool{}}
	f.fault = d.fault
	err := f.Write(t.Context(), image(3, size))
	if died = errors.Is(err, errDead); err != nil && !died {
		t.Fatal(err)
	}
	if died {
		d.fail(t, f.Path(Name{1, 2, 3}))
	}
	f = open2(t, dir) // another life
	n, found = newest(t, f)
	if found { // which goes on writing
		write(t, f, image(4, size))
		if n, _ := newest(t, f); n.Step != 4 {
			t.Errorf("the life after finds %v, not what it has written itself", n)
		}
	}
	return n, found, died
}

// TestAGoodCheckpointIsFoundAfterACrashAtAnyWrite: the newest or the one before it, never a
// mixture.
func TestAGoodCheckpointIsFoundAfterACrashAtAnyWrite(t *testing.T) {
	newer := 0
	for at := 0; ; at++ {
		for seed := range uint64(4) {
			n, found, died := crash(t, at, seed, true)
			if !died {
				if at < 10 || newer == 0 {
					t.Fatalf("the write was over after %d changes, %d crashes left the new checkpoint: too few to prove anything", at, newer)
				}
				return
			}
			switch {
			case !found, n.Step != 2 && n.Step != 3:
				t.Errorf("after a crash before change %d: found %v, %v", at, n, found)
			case n.Step == 3:
				newer++
			}
		}
	}
}

// TestTheCrashesWouldBeNoticed: without flushing, they leave a new checkpoint that is damaged. It
// is refused, and the one before found.
func TestTheCrashesWouldBeNoticed(t *testing.T) {
	damaged := 0
	for at := range 12 {
		for seed := range uint64(4) {
			dir := t.TempDir()
			t.Run(fmt.Sprint(at, "/", seed), func(t *testing.T) {
				f := open2(t, dir)
				write(t, f, image(2, size))
				d := &disk{at: at, rng: rand.New(rand.NewPCG(seed, uint64(at))), dirty: map[string]bool{}, renamed: map[string]bool{}}
				f.fault = d.fault
				_ = f.Write(t.Context(), image(3, size))
				d.fail(t, f.Path(Name{1, 2, 3}))
				f.fault = func(string, string) error { return nil }
				if all, _ := f.List(); len(all) == 2 {
					if n, found := newest(t, f); found && n.Step == 2 {
						damaged++
					}
				}
			})
		}
	}
	if damaged == 0 {
		t.Error("no crash damaged anything: the test proves nothing")
	}
}
