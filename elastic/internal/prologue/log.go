// Package prologue keeps the results of what the ranks of a job do together before their state is
// registered, so that a worker that comes late, or again, need not do it.
//
// What this package does not do: it does not know what a result means, nor who lacks which.
package prologue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Log is what the ranks of a job did together before their state was registered: the results
// of those operations, in order. All ranks have the same entries, as far as they have them. It is
// brought up to date at the start of each generation, and a newcomer to a running job fetches all
// of it. So a worker that comes late, or again, replays the results of what the others have done
// without it.
//
// The meaning of an entry is up to the program. The zero value is empty. It is safe for concurrent
// use.
type Log struct {
	mu      sync.Mutex
	entries [][]byte
	size    int
}

// MaxBytes is the limit of the total size of the entries, in bytes.
const MaxBytes = 256 << 20

var errDamaged = errors.New("what the ranks did before their state was registered is damaged")

// Len returns the number of entries.
func (p *Log) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}

// At returns an entry, which must not be modified; ok is false if there are not that many.
func (p *Log) At(i int) (entry []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i < 0 || i >= len(p.entries) {
		return nil, false
	}
	return p.entries[i], true
}

// Add appends the result of an operation in which all ranks took part.
func (p *Log) Add(result []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size+len(result) > MaxBytes {
		return fmt.Errorf("the operations before the state is registered have results of more than %d MiB together", MaxBytes>>20)
	}
	p.entries, p.size = append(p.entries, slices.Clone(result)), p.size+len(result)
	return nil
}

// Encode encodes the entries beginning with one: each as its length, u32 little endian, and its
// bytes.
func (p *Log) Encode(from int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b []byte
	for _, e := range p.entries[min(from, len(p.entries)):] {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return b
}

// Extend adds the entries that another worker has encoded, beginning with one. Entries that are
// here already are kept.
func (p *Log) Extend(from int, b []byte) error {
	for i := from; len(b) > 0; i++ {
		if len(b) < 4 {
			return errDamaged
		}
		n := uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if n > uint64(len(b)) {
			return errDamaged
		}
		if i >= p.Len() {
			if err := p.Add(b[:n]); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}
