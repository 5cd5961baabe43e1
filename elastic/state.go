package elastic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// Element is what a tensor can be made of: numbers without pointers, so that a commit is a plain copy of memory.
type Element interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// State is everything that a worker must be able to return to: tensors, small objects, the step, the place in the
// data and the ledger of consumed samples. They are one unit: committed, restored and sent together, or not at all.
//
// Register everything before Run, in the same way on every worker. A State belongs to one goroutine.
type State struct {
	sampler *Sampler
	step    uint64
	ledger  wire.Ledger
	tensors []tensor
	objects []object
	err     error // first wrong registration; Run returns it

	held  *snapshot // newest commit, nil = none
	spare *snapshot // where the next one is written, so that held stays whole until the new one is; nil = see blank
	named bool      // the hash of held is known
	warm  bool      // held was fetched aside and is not in the tensors yet
	shelf *shelf    // where held lies for others

	parts   [][]byte  // scratch of copyTo
	partial *snapshot // what was fetched aside and is no commit yet
	known   []mark    // of the leaves of partial; zero = unknown
}

type tensor struct {
	name, kind string
	memory     []byte // of the registered slice
}

type object struct {
	name  string
	value any // pointer
}

// NewState returns a state that reads its data in the order of sampler; nil = a program without a data set.
func NewState(sampler *Sampler) *State {
	if sampler == nil {
		sampler = NewSampler(0, 0)
	}
	return &State{sampler: sampler, ledger: wire.Ledger{Samples: sampler.samples}, shelf: newShelf()}
}

// Tensor makes the elements of t part of the state under a name. Restoring writes into t, so the program must keep
// using this slice and not another one.
func Tensor[T Element](s *State, name string, t []T) {
	s.claim(name)
	var zero T
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(t))), len(t)*int(unsafe.Sizeof(zero)))
	s.tensors = append(s.tensors, tensor{name: name, kind: fmt.Sprintf("%T", zero), memory: b})
}

// Object makes the value that pointer points to part of the state under a name. It is kept as JSON: for counters,
// settings and other small things. What JSON leaves out (unexported fields) is zero after a restore.
func (s *State) Object(name string, pointer any) {
	s.claim(name)
	if v := reflect.ValueOf(pointer); v.Kind() != reflect.Pointer || v.IsNil() {
		s.err = errors.Join(s.err, fmt.Errorf("object %q: not a pointer to a value", name))
		return
	}
	s.objects = append(s.objects, object{name: name, value: pointer})
}

func (s *State) claim(name string) {
	taken := false
	for _, t := range s.tensors {
		taken = taken || t.name == name
	}
	for _, o := range s.objects {
		taken = taken || o.name == name
	}
	if taken {
		s.err = errors.Join(s.err, fmt.Errorf("%q is registered twice", name))
	}
}

// Step is the number of steps that this state has behind it.
func (s *State) Step() uint64 { return s.step }

// Cursor is the place in the data.
func (s *State) Cursor() Cursor { return s.sampler.Cursor() }

// Committed names the newest commit that this worker holds; Generation 0 = none. Hash is empty until a Sync needed it.
func (s *State) Committed() wire.Commit {
	if s.held == nil || s.held.tentative {
		return wire.Commit{}
	}
	c := wire.Commit{Generation: s.held.generation, Step: s.held.step}
	if s.named {
		c.Hash = s.held.digest().String()
	}
	return c
}

// Ledger is the account of consumed samples; after Run has returned nil it is that of the last commit.
func (s *State) Ledger() wire.Ledger {
	l := s.ledger
	l.Epochs = append([]wire.LedgerEpoch(nil), l.Epochs...)
	return l
}

// meta is the part of a snapshot that is not tensors.
type meta struct {
	Step    uint64            `json:"step"`
	Cursor  Cursor            `json:"cursor"`
	Ledger  wire.Ledger       `json:"ledger"`
	Objects []json.RawMessage `json:"objects"` // in the order of their registration
}

// save makes the live state the newest commit. Its cost is one pass over the tensors; the hash waits until it is needed.
func (s *State) save(generation uint64) error {
	m := meta{Step: s.step, Cursor: s.sampler.Cursor(), Ledger: s.ledger, Objects: make([]json.RawMessage, len(s.objects))}
	var err error
	for i, o := range s.objects {
		if m.Objects[i], err = json.Marshal(o.value); err != nil {
			return fmt.Errorf("commit object %q: %w", o.name, err)
		}
	}
	to := s.blank()
	if to.meta, err = json.Marshal(m); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.copyTo(to)
	to.generation, to.step, to.tentative = generation, s.step, false
	s.adopt(to)
	return nil
}

// copyTo copies the tensors into a buffer. A leaf that has not changed since the commit before shares its hash, which is then
// computed once and not for every commit; if the buffer has it too, not even its bytes are copied.
func (s *State) copyTo(to *snapshot) {
	next, from := 0, 0 // tensor and place in it at which the leaf begins
	for i := range to.pieces {
		target := leaf(to.data, i)
		parts := s.parts[:0]
		for n := len(target); n > 0; {
			t := s.tensors[next].memory[from:]
			if len(t) == 0 {
				next, from = next+1, 0
				continue
			}
			t = t[:min(n, len(t))]
			parts, n, from = append(parts, t), n-len(t), from+len(t)
		}
		s.parts = parts
		if s.held != nil && same(parts, leaf(s.held.data, i)) {
			if to.pieces[i] == s.held.pieces[i] {
				continue
			}
			to.pieces[i] = s.held.pieces[i]
		} else {
			to.pieces[i] = new(piece)
		}
		for _, p := range parts {
			target = target[copy(target, p):]
		}
	}
}

func same(parts [][]byte, whole []byte) bool {
	for _, p := range parts {
		if !bytes.Equal(p, whole[:len(p)]) {
			return false
		}
		whole = whole[len(p):]
	}
	return true
}

// blank returns the spare snapshot; what it holds is of no interest.
func (s *State) blank() *snapshot {
	if s.spare == nil {
		s.spare = s.shelf.take()
	}
	if s.spare == nil {
		s.spare = newSnapshot(s.size())
	}
	return s.spare
}

// size is the number of bytes of all tensors.
func (s *State) size() int {
	size := 0
	for _, t := range s.tensors {
		size += len(t.memory)
	}
	return size
}

// adopt makes a written snapshot the held one.
func (s *State) adopt(n *snapshot) {
	if n == s.spare {
		s.spare = nil
	}
	s.held, s.named = n, false
	s.shelf.put(n, false)
}

// name computes the hash of what is held.
func (s *State) name() digest {
	s.named = true
	return s.held.digest()
}

// Restore returns to the newest commit: what happened since is void. Without a commit it does nothing.
func (s *State) Restore() error {
	if s.held == nil {
		return nil
	}
	var m meta
	if err := json.Unmarshal(s.held.meta, &m); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if len(m.Objects) != len(s.objects) {
		return fmt.Errorf("restore: the commit has %d objects, this program %d", len(m.Objects), len(s.objects))
	}
	at := 0
	for _, t := range s.tensors {
		at += copy(t.memory, s.held.data[at:])
	}
	for i, o := range s.objects {
		// Unmarshal merges into maps and keeps fields that are not mentioned: start from nothing.
		reflect.ValueOf(o.value).Elem().SetZero()
		if err := json.Unmarshal(m.Objects[i], o.value); err != nil {
			return fmt.Errorf("restore object %q: %w", o.name, err)
		}
	}
	s.step, s.ledger = m.Step, m.Ledger
	s.sampler.Seek(m.Cursor)
	return nil
}
