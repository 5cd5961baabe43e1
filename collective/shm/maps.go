package shm

import "sync"

// Maps are the arenas of other processes that this one has mapped. They stay mapped from
// one group to the next: mapping one again means a page fault for each of its pages.
type Maps struct {
	mu  sync.Mutex
	all map[string]*mapping
}

type mapping struct {
	mem  []byte
	used int // by so many groups
}

// NewMaps returns one without any.
func NewMaps() *Maps { return &Maps{all: map[string]*mapping{}} }

// take returns the memory of an arena, for a group that drops it when it closes.
func (m *Maps) take(name string, fd int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.all[name]
	if a == nil {
		mem, err := attachAll(fd)
		if err != nil {
			return nil, err
		}
		a = &mapping{mem: mem}
		m.all[name] = a
	}
	a.used++
	return a.mem, nil
}

// drop ends a group's use of an arena.
func (m *Maps) drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.all[name]; a != nil {
		a.used--
	}
}

// Prune unmaps what no group uses. Call it when the next group has formed, or it is known that
// there will be none: what is not used then belongs to a process that is gone.
func (m *Maps) Prune() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, a := range m.all {
		if a.used == 0 {
			detach(a.mem)
			delete(m.all, name)
		}
	}
}
