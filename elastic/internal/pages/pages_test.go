package pages

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// flags are those that Linux has for the mapping of a byte (man 5 proc_pid_smaps).
func flags(t *testing.T, at *byte) []string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	within := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			within = from <= uintptr(unsafe.Pointer(at)) && uintptr(unsafe.Pointer(at)) < to
		}
		if list, is := strings.CutPrefix(lines.Text(), "VmFlags:"); is && within {
			return strings.Fields(list)
		}
	}
	t.Fatal("nothing is mapped there")
	return nil
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

// TestHugePagesAreAskedFor: Linux knows of it ("hg"), unless it has none at all. Whether it finds
// some depends on what else is in memory.
func TestHugePagesAreAskedFor(t *testing.T) {
	_, err := os.Stat("/sys/kernel/mm/transparent_hugepage")
	const size = 10 * huge
	var p Pool
	ofGo := make([]byte, size+huge)
	Advise(ofGo)
	for _, b := range [][]byte{p.Get(size - 1000), ofGo} {
		if asked := slices.Contains(flags(t, &b[len(b)/2]), "hg"); asked != (err == nil) {
			t.Errorf("huge pages are asked for: %v; does the kernel have some: %v", asked, err == nil)
		}
	}
	runtime.KeepAlive(&p)
}

// TestForksGetNothing: Linux knows that it is not copied on fork ("dc").
func TestForksGetNothing(t *testing.T) {
	var p Pool
	if b := p.Get(3 * huge); !slices.Contains(flags(t, &b[0]), "dc") {
		t.Errorf("a process that is forked off has a copy")
	}
	runtime.KeepAlive(&p)
}

func TestMemoryIsUsedAgain(t *testing.T) {
	var p Pool
	for _, size := range []int{100, least - 1, least, 3*huge + 5} {
		a, b := p.Get(size), p.Get(size)
		if len(a) != size || len(b) != size {
			t.Fatalf("%d and %d bytes of %d", len(a), len(b), size)
		}
		fill(a, 1)
		fill(b, 2)
		if slices.Max(a) != 1 {
			t.Fatal("two that are in use have the same memory")
		}
		p.Put(a)
		if c := p.Get(size - size/20); &c[0] != &a[0] {
			t.Errorf("%d bytes: other memory than what was put back", size)
		}
		p.Put(b)
		p.Put(a)
	}
}

// TestSizesChange: what does not fit any more goes back to the system, so that a model which is
// dealt anew needs no memory beside that of the old one.
func TestSizesChange(t *testing.T) {
	var p Pool
	first, small := p.Get(20*huge), p.Get(10)
	other := p.Get(30 * huge)
	fill(first, 1)
	p.Put(first)
	p.Put(small)
	big := p.Get(25 * huge)
	fill(big, 3)
	if len(p.mapped.by) != 2 {
		t.Errorf("%d mappings are left, and two are in use", len(p.mapped.by))
	}
	p.Put(p.Get(5 * huge))
	p.Trim()
	if len(p.mapped.by) != 2 || len(p.free) > 0 {
		t.Errorf("%d mappings are left after a trim, and two are in use", len(p.mapped.by))
	}
	fill(other, 4)
	if slices.Max(big) != 3 || slices.Min(other) != 4 {
		t.Error("two that are in use have the same memory")
	}
}

// TestAPoolThatIsGarbage gives all of its memory back.
func TestAPoolThatIsGarbage(t *testing.T) {
	p := &Pool{}
	p.Put(p.Get(5 * huge))
	p.Get(3 * huge)
	m := p.mapped
	for left := -1; left != 0; {
		runtime.GC() // it calls cleanups some time later
		m.mu.Lock()
		left = len(m.by)
		m.mu.Unlock()
	}
}
