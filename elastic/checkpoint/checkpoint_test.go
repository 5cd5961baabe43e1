package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// image of a test's image: chunks that are all different.
func image(step uint64, size int) Image {
	i := Image{
		Name: Name{Run: 1, Generation: 2, Step: step}, Layout: "layout", Meta: []byte("meta of the image"),
		Tensors: []Tensor{{Name: "t", Type: "uint8", Bytes: int64(size)}}, Data: make([]byte, size),
	}
	for k := range i.Data {
		i.Data[k] = byte(k) ^ byte(k>>9) ^ byte(step) ^ byte(k>>20)*7
	}
	return i
}

const size = 2*chunkBytes + 1000

func open2(t testing.TB, dir string) *Dir {
	t.Helper()
	f, err := Open(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t testing.TB, f *Dir, i Image) {
	t.Helper()
	if err := f.Write(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

// newest reads the newest checkpoint that can be read.
func newest(t testing.TB, f *Dir) (n Name, found bool) {
	t.Helper()
	all, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		data := make([]byte, size)
		meta, err := f.Read(n, "layout", data)
		if errors.Is(err, ErrCorrupt) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if want := image(n.Step, size); !bytes.Equal(data, want.Data) || !bytes.Equal(meta, want.Meta) {
			t.Fatalf("%v is taken for whole, and is not what was written", n)
		}
		return n, true
	}
	return n, false
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	f := open2(t, t.TempDir())
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes} {
		i := image(uint64(n), n)
		write(t, f, i)
		data := make([]byte, n)
		meta, err := f.Read(i.Name, i.Layout, data)
		if err != nil || !bytes.Equal(data, i.Data) || !bytes.Equal(meta, i.Meta) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestNewestAreKept(t *testing.T) {
	dir := t.TempDir()
	f := open2(t, dir)
	for _, n := range []Name{{1, 9, 900}, {1, 10, 800}, {2, 1, 700}, {1, 3, 5000}} {
		i := image(n.Step, 10)
		i.Name = n
		write(t, f, i)
	}
	// The last one is late, from a writer that was cut off: it does not push newer ones out.
	all, err := f.List()
	if want := []Name{{2, 1, 700}, {1, 10, 800}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v: there are %v, want %v", err, all, want)
	}
}

// TestDamageIsFound: any byte of a file matters, and any length but its own.
func TestDamageIsFound(t *testing.T) {
	f := open2(t, t.TempDir())
	i := image(7, size)
	write(t, f, i)
	whole, err := os.ReadFile(f.Path(i.Name))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(f.Path(i.Name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(i.Name, i.Layout, make([]byte, size)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	for at := 0; at < len(whole); at += 1 + at/3 { // the header densely, the data here and there
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		refused("a bit", b)
	}
	for back := 1; back < 200; back += 7 {
		b := bytes.Clone(whole)
		b[len(b)-back] ^= 1
		refused("a bit of the end", b)
	}
	for _, n := range []int{0, 5, 100, len(whole) / 2, len(whole) - 1} {
		refused("cut off", whole[:n])
	}
	refused("one more byte", append(bytes.Clone(whole), 0))
	refused("zeros", make([]byte, len(whole)))
}

func TestAnotherProgramsCheckpointIsToldApart(t *testing.T) {
	f := open2(t, t.TempDir())
	i := image(7, size)
	write(t, f, i)
	if _, err := f.Read(i.Name, "another layout", make([]byte, size)); !errors.Is(err, ErrOther) || errors.Is(err, ErrCorrupt) {
		t.Errorf("another layout: %v", err)
	}
	if _, err := f.Read(i.Name, i.Layout, make([]byte, size+1)); !errors.Is(err, ErrOther) {
		t.Errorf("another size: %v", err)
	}
	if _, err := f.Read(Name{9, 9, 9}, i.Layout, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestDamagedOnesDoNotCount for what is kept: the last good one must not be removed for the sake of
// those.
func TestDamagedOnesDoNotCount(t *testing.T) {
	f := open2(t, t.TempDir())
	for step := range uint64(2) {
		write(t, f, image(step+1, size))
	}
	for _, step := range []uint64{3, 4} { // from elsewhere
		if err := os.WriteFile(f.Path(Name{1, 2, step}), []byte("RGCKPT01 torn"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := newest(t, f); n.Step != 2 {
		t.Fatalf("the newest good one is %v", n)
	}
	write(t, f, image(5, size))
	if all, _ := f.List(); !slices.Contains(all, Name{1, 2, 2}) || slices.Contains(all, Name{1, 2, 1}) {
		t.Errorf("there are %v; want the two good ones", all)
	}
}

func TestAWriterThatIsStoppedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f := open2(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	f.fault = func(op, _ string) error {
		if op == "write" {
			cancel()
		}
		return nil
	}
	if err := f.Write(ctx, image(1, size)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestWhatDeadWritersLeftIsRemoved(t *testing.T) {
	dir := t.TempDir()
	f := open2(t, dir)
	old, young := filepath.Join(dir, "a"+tempSuffix), filepath.Join(dir, "b"+tempSuffix)
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	write(t, f, image(1, 10))
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Error("an old unfinished file is still there")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("a file that may still be written was removed")
	}
}

func FuzzOpen(f *testing.F) {
	dir := open2(f, f.TempDir())
	i := image(1, 100)
	if err := dir.Write(context.Background(), i); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(dir.Path(i.Name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := open(bytes.NewReader(b), int64(len(b)))
		if err == nil && c.read(bytes.NewReader(b), make([]byte, c.Data)) == nil && int64(len(c.meta)) != c.Meta {
			t.Fatal("what is read is not what the header says")
		}
	})
}
