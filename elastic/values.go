package elastic

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Handler saves and restores a part of the state that is not a tensor. The goroutine of the
// training function calls its methods.
type Handler interface {
	// Save returns the value as bytes, which must not change afterwards. Each commit calls it, and
	// all ranks wait: a value should be small compared with the tensors.
	Save() ([]byte, error)
	// Restore makes the value what it was when Save returned saved, on this worker or on another
	// one, whatever it is now. It must not retain saved.
	Restore(saved []byte) error
}

// Handle registers a handler under a name. Object, Gob and Binary are Handle with handlers for
// values in those forms.
func (s *State) Handle(name string, h Handler) {
	s.reserve(name)
	if h == nil {
		s.err = errors.Join(s.err, fmt.Errorf("value %q: no handler", name))
		return
	}
	s.values = append(s.values, value{name: name, Handler: h})
}

// Object makes the value that pointer points to part of the state under a name. It is saved as
// JSON, which suits counters, settings and other small things. What JSON leaves out (unexported
// fields) is zero after a restore.
func (s *State) Object(name string, pointer any) {
	if s.checkPointer(name, pointer) {
		s.Handle(name, handler{
			save: func() ([]byte, error) { return json.Marshal(pointer) },
			restore: func(saved []byte) error {
				// Unmarshal merges into maps and keeps fields that are missing in the JSON.
				reflect.ValueOf(pointer).Elem().SetZero()
				return json.Unmarshal(saved, pointer)
			},
		})
	}
}

// Gob is Object in the form of package encoding/gob, for what JSON cannot represent, like NaN or
// maps whose keys are not strings. Maps are encoded in random order, so ranks with the same content
// seem to differ, and the values, but not the tensors, are sent again when they regroup.
func (s *State) Gob(name string, pointer any) {
	if s.checkPointer(name, pointer) {
		s.Handle(name, handler{
			save: func() ([]byte, error) {
				var b bytes.Buffer
				err := gob.NewEncoder(&b).Encode(pointer)
				return b.Bytes(), err
			},
			restore: func(saved []byte) error {
				reflect.ValueOf(pointer).Elem().SetZero() // gob omits zero fields
				return gob.NewDecoder(bytes.NewReader(saved)).Decode(pointer)
			},
		})
	}
}

// Binary makes v part of the state under a name, in its own binary form. The generators of
// math/rand/v2 have one: give them the same seed on all ranks, or derive a rank's randomness from
// the seed, the step and the rank and register none.
func (s *State) Binary(name string, v interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
},
) {
	if s.checkPointer(name, v) {
		s.Handle(name, handler{v.MarshalBinary, v.UnmarshalBinary})
	}
}

func (s *State) checkPointer(name string, p any) bool {
	if v := reflect.ValueOf(p); v.Kind() != reflect.Pointer || v.IsNil() {
		s.reserve(name)
		s.err = errors.Join(s.err, fmt.Errorf("object %q: not a pointer to a value", name))
		return false
	}
	return true
}

type handler struct {
	save    func() ([]byte, error)
	restore func(saved []byte) error
}

func (h handler) Save() ([]byte, error) { return h.save() }

func (h handler) Restore(saved []byte) error { return h.restore(saved) }

// metadata is the part of a commit that is not tensors.
type metadata struct {
	Run    uint64         `json:"run"` // see checkpoint.Name
	Step   uint64         `json:"step"`
	Cursor samples.Cursor `json:"cursor"`
	// Elastic is the position of an ElasticSampler.
	Elastic *samples.ElasticState `json:"elastic,omitempty"`

	Ledger workerprotocol.Ledger `json:"ledger"`
	Sizes  []int                 `json:"sizes"` // bytes of each value
	values [][]byte              // in the order of registration
}

var errMetadata = errors.New("the metadata of the state is damaged")

// encode returns the length of the JSON as u32 little endian, the JSON, and the concatenated
// values.
func (m *metadata) encode() ([]byte, error) {
	size := 0
	for _, v := range m.values {
		m.Sizes = append(m.Sizes, len(v))
		size += len(v)
	}
	head, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, 4+len(head)+size)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(head))), head...)
	for _, v := range m.values {
		b = append(b, v...)
	}
	return b, nil
}

// decodeMetadata decodes what encode returned. The values alias b.
func decodeMetadata(b []byte) (m metadata, err error) {
	if len(b) < 4 {
		return m, errMetadata
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if n > uint64(len(b)) {
		return m, errMetadata
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, fmt.Errorf("%w: %w", errMetadata, err)
	}
	b = b[n:]
	for _, size := range m.Sizes {
		if size < 0 || size > len(b) {
			return m, errMetadata
		}
		m.values = append(m.values, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return m, errMetadata
	}
	return m, nil
}

// resumeMetadata returns the metadata with which a run continues from a checkpoint.
func resumeMetadata(n checkpoint.Name, b []byte) (resumed []byte, step uint64, err error) {
	m, err := decodeMetadata(b)
	if err != nil {
		return nil, 0, err
	}
	m.Run, m.Sizes = n.Run+1, nil
	resumed, err = m.encode()
	return resumed, m.Step, err
}
