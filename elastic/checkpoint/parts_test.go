package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/elastic/reshard"
)

var (
	wide  = reshard.Tensor{Name: "wide", Type: "torch.float32", Width: 4, Shape: []int{1000, 600}}
	odd   = reshard.Tensor{Name: "odd", Type: "complex128", Width: 16, Shape: []int{5}}
	one   = reshard.Tensor{Name: "one", Type: "int64", Width: 8}
	empty = reshard.Tensor{Name: "empty", Type: "int8", Width: 1, Shape: []int{0, 7}}
)

// partsOf are a rank's parts of those tensors in a world of two: of one of them in two boxes.
func partsOf(rank int) []Part {
	at := 500 * rank
	parts := []Part{
		{Tensor: odd, Box: reshard.Box{Offset: []int{3 * rank}, Size: []int{3 - rank}}},
		{Tensor: wide, Box: reshard.Box{Offset: []int{at, 0}, Size: []int{500, 599}}},
		{Tensor: wide, Box: reshard.Box{Offset: []int{at, 599}, Size: []int{500, 1}}},
	}
	if rank == 0 {
		parts = append(parts, Part{Tensor: one, Box: reshard.Whole(nil)}, Part{Tensor: empty, Box: reshard.Whole(empty.Shape)})
	}
	r := rand.New(rand.NewPCG(uint64(rank), 1))
	for i, p := range parts {
		parts[i].Memory = make([]byte, p.Box.Elements()*p.Tensor.Width)
		for k := range parts[i].Memory {
			parts[i].Memory[k] = byte(r.Uint32())
		}
	}
	return parts
}

func setOf(step uint64) Set {
	return Set{Name: Name{Run: 1, Generation: 2, Step: step}, ID: 0xabc + step}
}

// writeSet writes a checkpoint with the parts of two ranks.
func writeSet(ctx context.Context, d *Dir, s Set) error {
	i := image(s.Name.Step, 10)
	i.Parts, i.Sharded = &s, []reshard.Tensor{wide, odd, one, empty}
	return errors.Join(d.WriteParts(ctx, s, 0, 2, partsOf(0)), d.Write(ctx, i), d.WriteParts(ctx, s, 1, 2, partsOf(1)))
}

func finish(d *Dir, s Set) error { return errors.Join(d.FinishParts(s), d.PruneParts(s)) }

// readSet compares all parts of a set with what was written. It returns the number of elements.
func readSet(t *testing.T, d *Dir, s Set) (elements int, err error) {
	t.Helper()
	files, err := d.PartFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files[s] {
		f, err := d.OpenPart(s, name)
		if err != nil {
			return 0, err
		}
		want := partsOf(f.Rank)
		for i, p := range f.Parts() {
			p.Memory = make([]byte, p.Box.Elements()*p.Tensor.Width)
			if err := f.Read(i, p); err != nil {
				return 0, errors.Join(err, f.Close())
			}
			found := false
			for _, w := range want {
				found = found || w.Tensor.Name == p.Tensor.Name && w.Box.Equal(p.Box) && bytes.Equal(w.Memory, p.Memory)
			}
			if !found || f.World != 2 {
				t.Errorf("%s: %s%v is not what was written", name, p.Tensor.Name, p.Box)
			}
			elements += p.Box.Elements()
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return elements, nil
}

const allElements = 1000*600 + 5 + 1

func TestPartsThatAreWrittenAreRead(t *testing.T) {
	d, s := open2(t, t.TempDir()), setOf(1)
	if err := writeSet(t.Context(), d, s); err != nil {
		t.Fatal(err)
	}
	for range 2 { // before and after it is finished
		if n, err := readSet(t, d, s); n != allElements || err != nil {
			t.Errorf("%d elements, %v", n, err)
		}
		if err := finish(d, s); err != nil {
			t.Fatal(err)
		}
	}
	if h, err := d.Describe(s.Name); err != nil || len(h.Sharded) != 4 {
		t.Errorf("%+v, %v", h, err)
	} else if got, ok := h.Set(); !ok || got != s {
		t.Errorf("its parts are %v", got)
	}
	size := int64(0)
	files, _ := filepath.Glob(filepath.Join(d.PartsPath(s), "rank-00000*"))
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		size += info.Size()
	}
	if bound := PartsBytes(partsOf(0)); len(files) != 2 || size > bound || bound > size+4096 {
		t.Errorf("%d files have %d bytes, at most %d were expected", len(files), size, bound)
	}
	f, err := d.OpenPart(s, "rank-00001.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for i, whole := range f.Parts() { // a box within
		if whole.Tensor.Name == "wide" {
			p := Part{Tensor: wide, Box: reshard.Box{Offset: []int{700, 5}, Size: []int{50, 7}}, Memory: make([]byte, 50*7*4)}
			if err := f.Read(i, p); err != nil {
				t.Error(err)
			}
			from := partsOf(1)[1]
			reshard.Runs(p.Box, from.Box, p.Box, 4, func(r reshard.Run) {
				if !bytes.Equal(from.Memory[r.At:r.At+r.Bytes], p.Memory[r.In:r.In+r.Bytes]) {
					t.Errorf("row at %d differs", r.At)
				}
			})
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamageOfPartsIsFound: any byte of a file matters, its length, and of which set it is.
func TestDamageOfPartsIsFound(t *testing.T) {
	d, s := open2(t, t.TempDir()), setOf(1)
	if err := errors.Join(writeSet(t.Context(), d, s), finish(d, s)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.PartsPath(s), "rank-00001.safetensors")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readSet(t, d, s); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	for at := 0; at < len(whole); at += 1 + at/3 { // the header densely, the data here and there
		b := bytes.Clone(whole)
		b[at] ^= 0x10
		refused(fmt.Sprint("a bit of byte ", at), b)
	}
	for _, n := range []int{0, 5, 100, len(whole) / 2, len(whole) - 1} {
		refused("cut off", whole[:n])
	}
	refused("one more byte", append(bytes.Clone(whole), 0))
	refused("zeros", make([]byte, len(whole)))
	other := setOf(2)
	if err := writeSet(t.Context(), d, other); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(d.path, other.folder(suffixWriting), "rank-00001.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	refused("that of another set", b)
}

func TestPartsOfOthersAreUntrusted(t *testing.T) {
	d, s := open2(t, t.TempDir()), setOf(1)
	if err := writeSet(t.Context(), d, s); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.path, s.folder(suffixWriting), "rank-00001.safetensors")
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenPart(s, "rank-00001.safetensors"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
	if _, err := d.OpenPart(s, "rank-00007.safetensors"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestOldSetsGoWithTheirCheckpoints: enough are kept of those that are whole and were not refused;
// what never was whole, and is older, goes. Newer ones stay.
func TestOldSetsGoWithTheirCheckpoints(t *testing.T) {
	d := open2(t, t.TempDir())
	torn, again := setOf(4), setOf(6)
	again.ID++
	for step := range uint64(8) {
		s := setOf(step)
		if err := writeSet(t.Context(), d, s); err != nil {
			t.Fatal(err)
		}
		switch step {
		case torn.Name.Step, 7:
		case 6:
			d.Refuse(setOf(3).Name)
			if err := errors.Join(d.WriteParts(t.Context(), again, 0, 2, partsOf(0)), finish(d, s)); err != nil {
				t.Fatal(err)
			}
		default:
			if err := d.FinishParts(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, strings.TrimPrefix(e.Name(), "run-000001.generation-0000000002.step-"))
	}
	want := []string{
		"00000000000005.0000000000000ac1.parts", "00000000000005.checkpoint", "00000000000006.0000000000000ac2.parts", "00000000000006.checkpoint",
		"00000000000007.0000000000000ac3.writing", "00000000000007.checkpoint",
	}
	if fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if err := d.AbandonParts(setOf(7)); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(d.path); len(entries) != 4 {
		t.Errorf("%v are left", entries)
	}
}

func TestAWriterOfPartsThatIsStoppedLeavesNoFile(t *testing.T) {
	d := open2(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	d.fault = func(op, _ string) error {
		if op == "write" {
			cancel()
		}
		return nil
	}
	if err := d.WriteParts(ctx, setOf(1), 0, 2, partsOf(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(d.path, "*", "*")); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	bad := []Part{{Tensor: reshard.Tensor{Name: "__metadata__", Type: "int8", Width: 1}, Box: reshard.Whole(nil), Memory: []byte{1}}}
	if err := d.WriteParts(t.Context(), setOf(1), 0, 1, bad); err == nil || !strings.Contains(err.Error(), "__metadata__") {
		t.Errorf("error %v", err)
	}
}

// TestASetIsWholeAfterACrashAtAnyWrite: the newest or the one before it can be read, and what is
// known to be whole is.
func TestASetIsWholeAfterACrashAtAnyWrite(t *testing.T) {
	newer := 0
	for at := 0; ; at++ {
		dir := t.TempDir()
		d := open2(t, dir)
		d.keep = 1
		older, newest := setOf(1), setOf(2)
		if err := errors.Join(writeSet(t.Context(), d, older), finish(d, older)); err != nil {
			t.Fatal(err)
		}
		disk := &disk{at: at, careful: true, rng: rand.New(rand.NewPCG(1, uint64(at))), dirty: map[string]bool{}, renamed: map[string]bool{}}
		d.fault = disk.fault
		err := writeSet(t.Context(), d, newest)
		if err == nil {
			err = finish(d, newest)
		}
		if err != nil && !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		for path := range disk.dirty { // what was not flushed is lost
			_ = os.Truncate(path, 0)
		}
		d = open2(t, dir)
		found := map[Set]bool{}
		for _, s := range []Set{older, newest} {
			n, e := readSet(t, d, s)
			_, replicated := d.Describe(s.Name)
			found[s] = n == allElements && e == nil && replicated == nil
			if d.Finished(s) && e != nil {
				t.Errorf("after a crash before change %d %v is finished and not whole: %v", at, s, e)
			}
		}
		if !found[older] && !found[newest] {
			t.Errorf("after a crash before change %d nothing is whole", at)
		}
		if found[newest] {
			newer++
		}
		if err == nil {
			if at < 20 || newer < 5 || found[older] {
				t.Errorf("%d changes, %d crashes left the newest: too few to prove anything", at, newer)
			}
			return
		}
	}
}

// FuzzParts: whatever a header says, with a checksum that matches, nothing is read outside of the
// file.
func FuzzParts(f *testing.F) {
	front, ordered, err := encodeParts(setOf(1), 1, 2, partsOf(1)[:2])
	if err != nil {
		f.Fatal(err)
	}
	size := len(front)
	for _, p := range ordered {
		size += len(p.Memory)
	}
	f.Add(front[8:], size)
	f.Add([]byte(`{"__metadata__":{"regroup_sha256":"`+noChecksum+`"}}`), 100)
	f.Fuzz(func(t *testing.T, header []byte, size int) {
		header = bytes.Clone(header)
		if place := checksumIn(header); place != nil {
			copy(place, noChecksum)
			sum := sha256.Sum256(header)
			hex.Encode(place, sum[:])
		}
		file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		_, parts, err := decodeParts(bytes.NewReader(file), int64(size), setOf(1))
		for _, p := range parts {
			if err == nil && (p.at < int64(len(file)) || p.at+int64(p.bytes()) > int64(size)) {
				t.Errorf("%s%v is at %d in a file of %d bytes", p.Tensor.Name, p.Box, p.at, size)
			}
		}
	})
}
