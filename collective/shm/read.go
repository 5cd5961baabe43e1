package shm

import "unsafe"

// Readable tells whether members can read any memory of each other.
func (g *Group) Readable() bool { return g.vm }

// Address is what another member passes to Read to get p.
func Address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// Read copies memory of a member, which must keep it as it is meanwhile. It may be called
// while an operation runs.
func (g *Group) Read(member int, address uint64, dst []byte) error {
	for len(dst) > 0 {
		if g.aborted.Load() {
			return ErrAborted
		}
		n := min(len(dst), fetchBytes)
		if err := readProcess(g.peers[member].pid, address, dst[:n]); err != nil {
			return &MemberError{member, err}
		}
		address, dst = address+uint64(n), dst[n:]
	}
	return nil
}
