package elastic

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// log is a handler of a program's own: a value that grows.
type log struct{ lines []byte }

func (l *log) Save() ([]byte, error) { return bytes.Clone(l.lines), nil }

func (l *log) Restore(saved []byte) error {
	l.lines = append(l.lines[:0], saved...)
	return nil
}

// TestValuesOfAllFormsReturnToTheCommit, together with the tensors.
func TestValuesOfAllFormsReturnToTheCommit(t *testing.T) {
	type settings struct {
		Rate  float64
		Names map[string]int
	}
	var (
		tensor = []float32{1, 2}
		asJSON = settings{Rate: 0.5, Names: map[string]int{"a": 1}}
		asGob  = settings{Rate: math.Inf(1), Names: map[string]int{"b": 2}}
		random = rand.NewPCG(1, 2)
		own    = &log{lines: []byte("first\n")}
	)
	s := NewState(nil)
	Tensor(s, "tensor", tensor)
	s.Object("json", &asJSON)
	s.Gob("gob", &asGob)
	s.Binary("random", random)
	s.Handle("log", own)
	random.Uint64()
	if err := s.save(1, true); err != nil {
		t.Fatal(err)
	}
	next := random.Uint64()
	tensor[0], asJSON.Rate, asJSON.Names["a"], asGob.Rate, asGob.Names["c"] = 9, 9, 9, 0, 9
	own.lines = append(own.lines, "second, which is longer\n"...)
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	if tensor[0] != 1 || asJSON.Rate != 0.5 || asJSON.Names["a"] != 1 || !math.IsInf(asGob.Rate, 1) || len(asGob.Names) != 1 || string(own.lines) != "first\n" {
		t.Errorf("restored: %v %v %v %q", tensor, asJSON, asGob, own.lines)
	}
	if got := random.Uint64(); got != next {
		t.Errorf("the generator goes on with %d, want %d", got, next)
	}
}

// broken is a handler that fails.
type broken struct{ save, restore error }

func (b broken) Save() ([]byte, error)  { return nil, b.save }
func (b broken) Restore(_ []byte) error { return b.restore }

// TestACommitThatFailsLeavesTheOneBefore: one value cannot be saved, and nothing of the others is.
func TestACommitThatFailsLeavesTheOneBefore(t *testing.T) {
	s, tensor, b := NewState(nil), []float32{1}, &struct{ broken }{}
	Tensor(s, "tensor", tensor)
	s.Handle("broken", b)
	if err := s.save(1, true); err != nil {
		t.Fatal(err)
	}
	tensor[0], s.step, b.save = 2, 1, errors.New("no")
	if err := s.save(1, true); !errors.Is(err, b.save) || !strings.Contains(err.Error(), `"broken"`) {
		t.Errorf("error %v", err)
	}
	if err := s.Restore(); err != nil || tensor[0] != 1 || s.Step() != 0 || s.Committed().Step != 0 {
		t.Errorf("%v: restored %v at step %d", err, tensor, s.Step())
	}
	b.restore = errors.New("never")
	if err := s.Restore(); !errors.Is(err, b.restore) {
		t.Errorf("error %v", err)
	}
}
