package shm

import "sync"

// MappingCache holds mappings of other processes' arenas. They outlive groups, since a new mapping
// costs a page fault for each page.
type MappingCache struct {
	mu  sync.Mutex
	all map[string]*mapping
}

type mapping struct {
	mem    []byte
	groups int // that use it
}

// NewMappingCache returns an empty cache.
func NewMappingCache() *MappingCache { return &MappingCache{all: map[string]*mapping{}} }

// acquire returns the memory of an arena, for a group that releases it when it closes.
func (m *MappingCache) acquire(name string, fd int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.all[name]
	if a == nil {
		mem, err := attachReadOnly(fd)
		if err != nil {
			return nil, err
		}
		a = &mapping{mem: mem}
		m.all[name] = a
	}
	a.groups++
	return a.mem, nil
}

func (m *MappingCache) release(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.all[name]; a != nil {
		a.groups--
	}
}

// Prune unmaps arenas that no group uses. Call it when the next group has formed, or when there
// will be none: unused arenas then belong to processes that are gone.
func (m *MappingCache) Prune() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, a := range m.all {
		if a.groups == 0 {
			detach(a.mem)
			delete(m.all, name)
		}
	}
}
