package shm

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// formation is the state of forming a group that all members have.
type formation struct {
	agreement
	rank, size int
	arena      *Arena // nil = none
	maps       *MappingCache
	probe      *probe
}

func newFormation(a agreement, rank, size int, arena *Arena, maps *MappingCache) *formation {
	f := &formation{a, rank, size, arena, maps, new(probe)}
	_, _ = rand.Read(f.probe[:]) // never fails
	allowPtrace()
	return f
}

// member describes this process to the others.
func (f *formation) member() member {
	m := member{
		PID: os.Getpid(), Probe: f.probe[:],
		Address: uint64(uintptr(unsafe.Pointer(f.probe))), // which Go does not move
	}
	if f.arena != nil {
		m.Arena = f.arena.name
	}
	return m
}

// decide takes part in a round.
func (f *formation) decide(mine vote) (vote, error) {
	all, err := f.round(mine)
	if all.Problem == "" {
		all.Problem = mine.Problem // even if the others did not hear of it
	}
	return decision(all, err)
}

// decision is the outcome of a round: an error if anybody has a problem.
func decision(all vote, err error) (vote, error) {
	if err == nil && all.Problem != "" {
		err = fmt.Errorf("%w: %s", ErrUnavailable, all.Problem)
	}
	return all, err
}

func (f vote) with(problem error) vote {
	if problem != nil {
		f.Problem = problem.Error()
	}
	return f
}

// finish maps the segment and the arenas. fds are the descriptors of the segment and of those
// arenas that have a name.
func (f *formation) finish(fds []int, members []member) (*Group, error) {
	g, problem := f.assemble(fds, members)
	mine := vote{}.with(problem)
	if problem == nil {
		mine.NoVM = !g.canReadAll(members)
	}
	all, err := f.decide(mine)
	if err != nil {
		if g != nil {
			g.Close()
		}
		return nil, err
	}
	g.vm = !all.NoVM
	return g, nil
}

func (f *formation) assemble(fds []int, members []member) (*Group, error) {
	if len(fds) == 0 || len(members) != f.size {
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
	g := newGroup(f.rank, f.size, mem)
	g.arena, g.maps, g.probe = f.arena, f.maps, f.probe
	rest := fds[1:]
	for q, m := range members {
		switch {
		case m.Arena == "":
			continue
		case len(rest) == 0:
			return g, errors.New("an arena did not arrive")
		}
		if q != f.rank {
			if g.peers[q].arena, err = f.maps.acquire(m.Arena, rest[0]); err != nil {
				return g, err
			}
			g.peers[q].name = m.Arena
		}
		rest = rest[1:]
	}
	return g, nil
}

// canReadAll reads every member's probe. In another PID namespace a process ID belongs to another
// process, or to none.
func (g *Group) canReadAll(members []member) bool {
	ok := true
	for q, m := range members {
		g.peers[q].pid = m.PID
		var got probe
		err := readProcess(m.PID, m.Address, got[:])
		ok = ok && err == nil && bytes.Equal(got[:], m.Probe)
	}
	return ok
}
