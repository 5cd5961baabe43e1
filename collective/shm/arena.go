package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is memory of this process that the members of its groups map, so that operations on it need
// no copy. It outlives groups.
type Arena struct {
	fd   int
	name string
	mem  []byte // all of it, in use or not: untouched pages cost nothing

	mu    sync.Mutex
	free  []extent // ascending, never adjacent
	taken map[int]int
}

type extent struct{ at, n int }

// ErrFull says that an arena has no room for an allocation.
var ErrFull = errors.New("shm: the arena is full")

// NewArena reserves as much address space as the machine has memory.
func NewArena() (*Arena, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("shm: sysinfo: %w", err)
	}
	n := pages(int(info.Totalram) * int(info.Unit))
	fd, err := create("regroup-arena", n)
	if err != nil {
		return nil, err
	}
	mem, err := attach(fd, n, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return &Arena{fd: fd, name: hex.EncodeToString(id[:]), mem: mem, free: []extent{{0, n}}, taken: map[int]int{}}, nil
}

// Alloc returns n zeroed bytes, aligned to a page. Call Free when no rank
// reads them any more.
func (a *Arena) Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("shm: %d bytes", n)
	}
	size := pages(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, e := range a.free {
		if e.n < size {
			continue
		}
		a.free[i] = extent{e.at + size, e.n - size}
		if e.n == size {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.taken[e.at] = size
		return a.mem[e.at : e.at+n : e.at+size], nil
	}
	return nil, ErrFull
}

// Free returns memory from Alloc to the system. It panics on any other memory.
func (a *Arena) Free(p []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := int(a.offset(p))
	n, ok := a.taken[at]
	if !ok || !a.holds(p) {
		panic("shm: freed memory that the arena has not given out")
	}
	delete(a.taken, at)
	_ = unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(n))
	i, _ := slices.BinarySearchFunc(a.free, at, func(e extent, at int) int { return e.at - at })
	a.free = slices.Insert(a.free, i, extent{at, n})
	if i+1 < len(a.free) && at+n == a.free[i+1].at {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].n == at {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// holds reports whether p lies within the arena. A nil arena holds nothing.
func (a *Arena) holds(p []byte) bool {
	if a == nil || len(p) == 0 {
		return false
	}
	at := a.offset(p)
	return at < uint64(len(a.mem)) && at+uint64(len(p)) <= uint64(len(a.mem))
}

// offset is the offset of p. It is beyond the end if p is not within the arena.
func (a *Arena) offset(p []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem))))
}

// Close releases all memory. None of it may be in use.
func (a *Arena) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mem != nil {
		detach(a.mem)
		a.mem = nil
		_ = unix.Close(a.fd)
	}
}
