package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// formation is the part that all members of a group have alike.
type formation struct {
	council
	size int
	maps *Maps
}

// agree brings a problem, or none, to a round.
func (f *formation) agree(problem error) error {
	_, err := f.conclude(finding{}.with(problem))
	return err
}

func (f finding) with(problem error) finding {
	if problem != nil {
		f.Problem = problem.Error()
	}
	return f
}

func (f *formation) conclude(mine finding) (finding, error) {
	all, err := f.round(mine)
	if all.Problem == "" {
		all.Problem = mine.Problem // whatever the others make of it
	}
	if err == nil && all.Problem != "" {
		err = fmt.Errorf("%w: %s", ErrUnavailable, all.Problem)
	}
	return all, err
}

// finish maps what was handed out: fds are those of the segment and of the arenas that
// names tell of.
func (f *formation) finish(rank int, fds []int, names []string, arena *Arena) (*Group, error) {
	g, problem := f.assemble(rank, fds, names, arena)
	if err := f.agree(problem); err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	all, err := f.conclude(finding{NoVM: !g.readable()})
	if err != nil {
		g.Close()
		return nil, err
	}
	g.vm = !all.NoVM
	return g, nil
}

func (f *formation) assemble(rank int, fds []int, names []string, arena *Arena) (*Group, error) {
	if len(fds) == 0 || len(names) != f.size {
		return nil, errors.New("the segment did not arrive")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fds[0], &st); err != nil || st.Size < int64(segmentBytes(f.size)) {
		return nil, fmt.Errorf("the segment has %d bytes, not %d: %w", st.Size, segmentBytes(f.size), err)
	}
	mem, err := attach(fds[0], segmentBytes(f.size), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	g := newGroup(rank, f.size, mem)
	g.arena, g.maps = arena, f.maps
	rest := fds[1:]
	for q, name := range names {
		switch {
		case name == "":
			continue
		case len(rest) == 0:
			return g, errors.New("an arena did not arrive")
		}
		if q != rank {
			if g.peers[q].arena, err = f.maps.take(name, rest[0]); err != nil {
				return g, err
			}
			g.peers[q].name = name
		}
		rest = rest[1:]
	}
	allowReading()
	g.identify()
	return g, nil
}

// identify says who this member is and what is in its probe.
func (g *Group) identify() {
	g.probe = new(probe)
	_, _ = rand.Read(g.probe[:]) // never fails
	identity := g.block(g.rank)[atIdentity:]
	*(*uint64)(unsafe.Pointer(&identity[0])) = uint64(os.Getpid())
	*(*uint64)(unsafe.Pointer(&identity[8])) = uint64(uintptr(unsafe.Pointer(g.probe)))
	copy(identity[16:], g.probe[:])
	atomic.StoreUint32(g.word(g.rank, atBell), 0)
}

// readable tries to read every member's probe. In another namespace a process id is that
// of another process, or of none.
func (g *Group) readable() bool {
	ok := true
	for q := range g.size {
		identity := g.block(q)[atIdentity:]
		g.peers[q].pid = int(*(*uint64)(unsafe.Pointer(&identity[0])))
		at := *(*uint64)(unsafe.Pointer(&identity[8]))
		var got probe
		err := readProcess(g.peers[q].pid, at, got[:])
		ok = ok && err == nil && slices.Equal(got[:], identity[16:16+len(got)])
	}
	return ok
}
