package collective

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

// census counts the resources of the process.
type census struct {
	goroutines, descriptors int
	arenas, segments        int // mappings of shared memory
	heap, resident          int // bytes
}

func (c census) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d arenas and %d segments mapped, %d KiB of heap, %d KiB resident",
		c.goroutines, c.descriptors, c.arenas, c.segments, c.heap>>10, c.resident>>10)
}

func takeCensus(t testing.TB) census {
	t.Helper()
	debug.FreeOSMemory() // collects too
	return count(t)
}

// count takes a census without running the garbage collector, and thus no finalizers.
func count(t testing.TB) (c census) {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.goroutines, c.heap = runtime.NumGoroutine(), int(m.HeapAlloc)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	c.descriptors = len(fds)
	maps := read(t, "/proc/self/maps")
	c.arenas, c.segments = strings.Count(maps, "memfd:regroup-arena"), strings.Count(maps, "memfd:regroup-group")
	pages, err := strconv.Atoi(strings.Fields(read(t, "/proc/self/statm"))[1])
	if err != nil {
		t.Fatal(err)
	}
	c.resident = pages * os.Getpagesize()
	return c
}

// settled takes a census that stays. The goroutines of a killed rank end soon after the kill, not
// with it, so it counts again until the numbers fit, for patience at most.
func settled(t testing.TB, take func(testing.TB) census, holds func(census) bool) (c census, ok bool) {
	t.Helper()
	for until := time.Now().Add(patience); ; runtime.Gosched() {
		if c = take(t); holds(c) {
			return c, true
		}
		if time.Now().After(until) {
			return c, false
		}
	}
}

// holdsMore tells whether c has descriptors or mappings that before has not.
func (c census) holdsMore(before census) bool {
	return c.descriptors > before.descriptors || c.arenas > before.arenas || c.segments > before.segments
}

// withMost is c with the larger numbers of descriptors and mappings of both.
func (c census) withMost(other census) census {
	c.descriptors, c.arenas, c.segments = max(c.descriptors, other.descriptors), max(c.arenas, other.arenas), max(c.segments, other.segments)
	return c
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestArenasOfThoseWhoAreGoneAreUnmapped: also if the next generation shares no memory.
func TestArenasOfThoseWhoAreGoneAreUnmapped(t *testing.T) {
	f := fabrics()[2]
	before := takeCensus(t)
	alone := endpoints(t, f, 1)
	others := endpoints(t, f, 2)
	closeAll(form(t, append(alone, others...), 1, nil))
	for _, e := range others {
		_ = e.Close()
	}
	closeAll(form(t, alone, 2, nil))
	if c, ok := settled(t, count, func(c census) bool { return c.arenas == before.arenas+1 }); !ok {
		t.Errorf("%d arenas are mapped", c.arenas-before.arenas)
	}
}
