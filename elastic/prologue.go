package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Prologue is what the ranks of a job did together before their state was registered: the results of those operations, in order. It is the
// same on all ranks as far as it goes, is brought up to date at the begin of each generation, and a newcomer to a running job
// gets it whole. So a worker that comes late, or again, is answered from it what the others have agreed on without it.
//
// What an entry means is the program's business. The zero value is empty; it may be used by several goroutines.
type Prologue struct {
	mu      sync.Mutex
	entries [][]byte
	size    int
}

// MaxPrologue is how many bytes the entries may have together.
const MaxPrologue = 256 << 20

var errPrologue = errors.New("what the ranks did before their state was registered is damaged")

// Len returns the number of entries.
func (p *Prologue) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}

// At returns an entry; false if there are not that many. Nobody may change it.
func (p *Prologue) At(i int) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i < 0 || i >= len(p.entries) {
		return nil, false
	}
	return p.entries[i], true
}

// Add appends the result of an operation that all ranks took part in.
func (p *Prologue) Add(result []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size+len(result) > MaxPrologue {
		return fmt.Errorf("the operations before the state is registered have results of more than %d MiB together", MaxPrologue>>20)
	}
	p.entries, p.size = append(p.entries, slices.Clone(result)), p.size+len(result)
	return nil
}

// encode returns the entries from one on: each as its length, u32 little endian, and its bytes.
func (p *Prologue) encode(from int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b []byte
	for _, e := range p.entries[min(from, len(p.entries)):] {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e)))
		b = append(b, e...)
	}
	return b
}

// extend takes the entries from one on as another worker has them. What is here already stays.
func (p *Prologue) extend(from int, b []byte) error {
	for i := from; len(b) > 0; i++ {
		if len(b) < 4 {
			return errPrologue
		}
		n := uint64(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if n > uint64(len(b)) {
			return errPrologue
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
