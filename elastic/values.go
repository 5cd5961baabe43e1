package elastic

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/regroup-io/regroup/elastic/internal/metadata"
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
	s.form(name, pointer, func() ([]byte, error) { return json.Marshal(pointer) }, func(saved []byte) error {
		// Unmarshal merges into maps and keeps fields that are missing in the JSON.
		reflect.ValueOf(pointer).Elem().SetZero()
		return json.Unmarshal(saved, pointer)
	})
}

// Gob is Object in the form of package encoding/gob, for what JSON cannot represent, like NaN or
// maps whose keys are not strings. Maps are encoded in random order, so ranks with the same content
// seem to differ, and the values, but not the tensors, are sent again when they regroup.
func (s *State) Gob(name string, pointer any) {
	s.form(name, pointer, func() ([]byte, error) {
		var b bytes.Buffer
		err := gob.NewEncoder(&b).Encode(pointer)
		return b.Bytes(), err
	}, func(saved []byte) error {
		reflect.ValueOf(pointer).Elem().SetZero() // gob omits zero fields
		return gob.NewDecoder(bytes.NewReader(saved)).Decode(pointer)
	})
}

// Binary makes v part of the state under a name, in its own binary form. The generators of
// math/rand/v2 have one: give them the same seed on all ranks, or derive a rank's randomness from
// the seed, the step and the rank and register none.
func (s *State) Binary(name string, v interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
},
) {
	s.form(name, v, v.MarshalBinary, v.UnmarshalBinary)
}

// form makes the value that p points to part of the state, in a form of its own.
func (s *State) form(name string, p any, save func() ([]byte, error), restore func(saved []byte) error) {
	if v := reflect.ValueOf(p); v.Kind() != reflect.Pointer || v.IsNil() {
		s.reserve(name)
		s.err = errors.Join(s.err, fmt.Errorf("object %q: not a pointer to a value", name))
		return
	}
	s.Handle(name, metadata.Funcs{Saves: save, Restores: restore})
}
