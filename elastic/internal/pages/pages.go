// Package pages has memory for what is large and replaced as a whole, like the copies of a commit,
// in huge pages where the system has them.
//
// A process with much memory in ordinary pages, of 4 KiB, is slow to begin and to end: Linux takes
// 0.4 s to hand a GiB of them out, and 70 ms to take it back when a process was killed; until then
// nobody learns that it is dead. With pages of 2 MiB these are 70 and 5 ms (docs/benchmarks.md).
//
// What this package does not do: it never fails for want of huge pages. Then the memory is in
// ordinary ones.
package pages

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// huge is the size of a huge page, of those that Linux has by itself on amd64 and arm64.
	huge = 2 << 20
	// least is the size from which memory is not taken from Go's heap: there it would be garbage
	// for as long again as it was in use.
	least = 2 * huge
)

// Advise asks for huge pages for the part of b that they fit into.
func Advise(b []byte) {
	if len(b) < huge {
		return
	}
	first := -uintptr(unsafe.Pointer(&b[0])) % huge
	if n := (uintptr(len(b)) - min(first, uintptr(len(b)))) &^ (huge - 1); n > 0 {
		_ = unix.Madvise(b[first:first+n], unix.MADV_HUGEPAGE) // an error says that there are none
	}
}

// Pool is memory that is used again. Its methods may be called by one goroutine at a time. The
// memory is given back at the latest when the pool is garbage: who uses the one keeps the other.
type Pool struct {
	free   [][]byte
	mapped *mappings // nil = none yet
}

// Get returns memory of so many bytes, whose content is undefined. What was put back is used again
// where it fits; where nothing fits the sizes in use have changed, and all of it goes back to the
// system.
func (p *Pool) Get(size int) []byte {
	most := size + size/8
	if size >= least {
		most = rounded(most)
	}
	for i, b := range p.free {
		if cap(b) >= size && cap(b) <= most {
			p.free = slices.Delete(p.free, i, i+1)
			return b[:size]
		}
	}
	p.Trim()
	if size < least {
		return make([]byte, size)
	}
	if p.mapped == nil {
		p.mapped = &mappings{by: map[*byte][]byte{}}
		runtime.AddCleanup(p, (*mappings).close, p.mapped)
	}
	return p.mapped.add(size)
}

// Put gives memory from Get back. Nobody may use it any more.
func (p *Pool) Put(b []byte) { p.free = append(p.free, b) }

// Trim gives back to the system what was put back.
func (p *Pool) Trim() {
	for _, b := range p.free {
		if cap(b) >= least {
			p.mapped.remove(b)
		}
	}
	p.free = nil
}

// rounded is the capacity of mapped memory of so many bytes.
func rounded(size int) int { return (size + huge - 1) &^ (huge - 1) }

// mappings are what a pool has from the system, by the first byte.
type mappings struct {
	mu sync.Mutex // a cleanup runs on a goroutine of its own
	by map[*byte][]byte
}

func (m *mappings) add(size int) []byte {
	n := rounded(size)
	// Linux gives no addresses that are multiples of a huge page for the asking: what is before and
	// after one costs nothing until it is used.
	all, err := unix.Mmap(-1, 0, n+huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(fmt.Sprintf("allocate %d bytes for a commit: %v", size, err)) // like make, without a way to go on
	}
	Advise(all)
	// A process that is forked off, as to load data, has no use for it, and would keep what
	// this one overwrites.
	_ = unix.Madvise(all, unix.MADV_DONTFORK) // it is memory of this process
	first := int(-uintptr(unsafe.Pointer(&all[0])) % huge)
	b := all[first : first+size : first+n]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.by[&b[0]] = all
	return b
}

func (m *mappings) remove(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := &b[:1][0]
	_ = unix.Munmap(m.by[first]) // it is one of add
	delete(m.by, first)
}

func (m *mappings) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.by {
		_ = unix.Munmap(all)
	}
	clear(m.by)
}
