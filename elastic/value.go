package elastic

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Handler keeps one part of the state that is not a tensor. Its methods are called by the goroutine of the training function.
type Handler interface {
	// Save returns the value as bytes, of any number, which nobody may change afterwards. It is called by each commit, while
	// all ranks wait: values are for what is small beside the tensors.
	Save() ([]byte, error)
	// Restore makes the value what it was when saved was returned, on this worker or on another one. What happened since must
	// leave no trace. It must not keep saved.
	Restore(saved []byte) error
}

// Handle makes what h keeps part of the state under a name. Object, Gob and Binary are Handle with a handler for values in
// those forms.
func (s *State) Handle(name string, h Handler) {
	s.reserve(name)
	if h == nil {
		s.err = errors.Join(s.err, fmt.Errorf("value %q: no handler", name))
		return
	}
	s.values = append(s.values, value{name: name, Handler: h})
}

// Object makes the value that pointer points to part of the state under a name. It is kept as JSON: for counters,
// settings and other small things. What JSON leaves out (unexported fields) is zero after a restore.
func (s *State) Object(name string, pointer any) {
	if s.pointer(name, pointer) {
		s.Handle(name, jsonValue{pointer})
	}
}

// Gob is Object in the form of package encoding/gob: for what JSON cannot say, like NaN or maps with keys that are no text.
// Maps with several keys are written in any order, so that ranks with the same content seem to differ and the values, not the tensors, are
// sent once more when they regroup.
func (s *State) Gob(name string, pointer any) {
	if s.pointer(name, pointer) {
		s.Handle(name, gobValue{pointer})
	}
}

// Binary makes v part of the state under a name, in its own binary form. The generators of math/rand/v2 have one: seed
// them alike on all ranks, or derive a rank's randomness from the seed, the step and the rank and keep none.
func (s *State) Binary(name string, v interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
},
) {
	if s.pointer(name, v) {
		s.Handle(name, binaryValue{v, v})
	}
}

func (s *State) pointer(name string, p any) bool {
	if v := reflect.ValueOf(p); v.Kind() != reflect.Pointer || v.IsNil() {
		s.reserve(name)
		s.err = errors.Join(s.err, fmt.Errorf("object %q: not a pointer to a value", name))
		return false
	}
	return true
}

type jsonValue struct{ pointer any }

func (v jsonValue) Save() ([]byte, error) { return json.Marshal(v.pointer) }

func (v jsonValue) Restore(saved []byte) error {
	// Unmarshal merges into maps and keeps fields that are not mentioned: start from nothing.
	reflect.ValueOf(v.pointer).Elem().SetZero()
	return json.Unmarshal(saved, v.pointer)
}

type gobValue struct{ pointer any }

func (v gobValue) Save() ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v.pointer)
	return b.Bytes(), err
}

func (v gobValue) Restore(saved []byte) error {
	reflect.ValueOf(v.pointer).Elem().SetZero() // zero fields are not sent
	return gob.NewDecoder(bytes.NewReader(saved)).Decode(v.pointer)
}

type binaryValue struct {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

func (v binaryValue) Save() ([]byte, error) { return v.MarshalBinary() }

func (v binaryValue) Restore(saved []byte) error { return v.UnmarshalBinary(saved) }
