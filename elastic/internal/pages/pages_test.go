package pages

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// resident returns how many bytes of the mapping of a byte are in memory, and how many of these in
// huge pages.
func resident(t *testing.T, at *byte) (all, inHuge int) {
	t.Helper()
	kib := func(name string) int {
		n, err := strconv.Atoi(mapping(t, at)[name][0])
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	return kib("Rss:"), kib("AnonHugePages:")
}

// mapping is what Linux says of the mapping of a byte, by name.
func mapping(t *testing.T, at *byte) map[string][]string {
	t.Helper()
	of := map[string][]string{}
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
		fields := strings.Fields(lines.Text())
		if within && len(fields) > 1 {
			of[fields[0]] = fields[1:]
		}
	}
	return of
}

func fill(b []byte, with byte) {
	for i := range b {
		b[i] = with
	}
}

func TestMemoryIsInHugePages(t *testing.T) {
	if enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil || strings.Contains(string(enabled), "[never]") {
		t.Skipf("there are none: %s%v", enabled, err)
	}
	const size = 10 * huge
	var p Pool
	ofGo := make([]byte, size+huge)
	Advise(ofGo)
	for _, b := range [][]byte{p.Get(size - 1000), ofGo} {
		fill(b, 1)
		if all, inHuge := resident(t, &b[len(b)/2]); inHuge < size/2 {
			t.Errorf("%d bytes of %d that are used are in huge pages", inHuge, all)
		}
	}
	runtime.KeepAlive(&p)
}

// TestForksGetNothing: Linux has it among the flags of the mapping ("dc": do not copy on fork).
func TestForksGetNothing(t *testing.T) {
	var p Pool
	b := p.Get(3 * huge)
	if flags := mapping(t, &b[0])["VmFlags:"]; !slices.Contains(flags, "dc") {
		t.Errorf("a process that is forked off has a copy: %v", flags)
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
	at := &first[0]
	if all, _ := resident(t, at); all < 20*huge {
		t.Fatalf("%d bytes are in memory", all)
	}
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
