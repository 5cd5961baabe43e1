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

// formation is the state of forming a group that all members have.
type formation struct {
	agreement
	size int
	maps *MappingCache
}

// agree takes part in a round with a problem, or with none.
func (f *formation) agree(problem error) error {
	_, err := f.decide(vote{}.with(problem))
	return err
}

func (f vote) with(problem error) vote {
	if problem != nil {
		f.Problem = problem.Error()
	}
	return f
}

func (f *formation) decide(mine vote) (vote, error) {
	all, err := f.round(mine)
	if all.Problem == "" {
		all.Problem = mine.Problem // even if the others did not hear of it
	}
	if err == nil && all.Problem != "" {
		err = fmt.Errorf("%w: %s", ErrUnavailable, all.Problem)
	}
	return all, err
}

// finish maps the segment and the arenas. fds are the descriptors of the segment and of those
// arenas that have a name.
func (f *formation) finish(rank int, fds []int, names []string, arena *Arena) (*Group, error) {
	g, problem := f.assemble(rank, fds, names, arena)
	if err := f.agree(problem); err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	all, err := f.decide(vote{NoVM: !g.canReadAll()})
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
			if g.peers[q].arena, err = f.maps.acquire(name, rest[0]); err != nil {
				return g, err
			}
			g.peers[q].name = name
		}
		rest = rest[1:]
	}
	allowPtrace()
	g.publishIdentity()
	return g, nil
}

// publishIdentity publishes this member's process ID and the address and content of its probe.
func (g *Group) publishIdentity() {
	g.probe = new(probe)
	_, _ = rand.Read(g.probe[:]) // never fails
	identity := g.block(g.rank)[offIdentity:]
	*(*uint64)(unsafe.Pointer(&identity[0])) = uint64(os.Getpid())
	*(*uint64)(unsafe.Pointer(&identity[8])) = uint64(uintptr(unsafe.Pointer(g.probe)))
	copy(identity[16:], g.probe[:])
	atomic.StoreUint32(g.word(g.rank, offDoorbell), 0)
}

// canReadAll reads every member's probe. In another PID namespace a process ID belongs to another
// process, or to none.
func (g *Group) canReadAll() bool {
	ok := true
	for q := range g.size {
		identity := g.block(q)[offIdentity:]
		g.peers[q].pid = int(*(*uint64)(unsafe.Pointer(&identity[0])))
		at := *(*uint64)(unsafe.Pointer(&identity[8]))
		var got probe
		err := readProcess(g.peers[q].pid, at, got[:])
		ok = ok && err == nil && slices.Equal(got[:], identity[16:16+len(got)])
	}
	return ok
}
