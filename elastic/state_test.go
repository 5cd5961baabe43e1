package elastic

import (
	"math"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
	"pgregory.net/rapid"
)

type mixed struct {
	f32 []float32
	f64 []float64
	i64 []int64
	u8  []uint8
	obj struct {
		Name  string
		Table map[string]int
		Best  *float64
	}
	state *State
}

func newMixed(n int) *mixed {
	m := &mixed{f32: make([]float32, n), f64: make([]float64, 3), i64: make([]int64, 1), u8: make([]uint8, n+1), state: NewState(samples.NewSampler(100, 1))}
	Tensor(m.state, "f32", m.f32)
	Tensor(m.state, "f64", m.f64)
	Tensor(m.state, "i64", m.i64)
	Tensor(m.state, "u8", m.u8)
	m.state.Object("obj", &m.obj)
	return m
}

func (m *mixed) scramble(r *rapid.T) {
	for i := range m.f32 {
		m.f32[i] = math.Float32frombits(rapid.Uint32().Draw(r, "bits")) // NaNs with payloads too
	}
	m.f64[0] = rapid.Float64().Draw(r, "f64")
	m.i64[0] = rapid.Int64().Draw(r, "i64")
	m.u8[0] = rapid.Uint8().Draw(r, "u8")
	m.obj.Name = rapid.String().Draw(r, "name")
	m.obj.Table = rapid.MapOfN(rapid.StringN(0, 3, -1), rapid.Int(), 0, 4).Draw(r, "table")
	m.obj.Best = nil
	if rapid.Bool().Draw(r, "best") {
		m.obj.Best = &m.f64[0]
	}
	b := m.state.sampler.Next(rapid.IntRange(1, 40).Draw(r, "batch"), 0, 1)
	m.state.ledger.Add(workerprotocol.LedgerEpoch{Epoch: b.Epoch, Count: uint64(b.Total), Sum: samples.HashSum(b.Indices), Done: b.Last})
	m.state.sampler.Advance(b)
	m.state.step++
}

func TestRestoreIsByteExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMixed(rapid.IntRange(0, 20).Draw(r, "n"))
		var digest statesync.Digest
		var step uint64
		for range rapid.IntRange(1, 10).Draw(r, "steps") {
			m.scramble(r)
			if rapid.Bool().Draw(r, "commit") || step == 0 {
				if err := m.state.save(3, true); err != nil {
					r.Fatal(err)
				}
				digest, step = m.state.replica.Newest().Digest(), m.state.step
			}
		}
		m.scramble(r)
		if err := m.state.Restore(); err != nil {
			r.Fatal(err)
		}
		if m.state.Step() != step {
			r.Fatalf("step %d, want %d", m.state.Step(), step)
		}
		// Saving what was restored gives the same bytes, hence the same digest.
		if err := m.state.save(4, true); err != nil {
			r.Fatal(err)
		}
		if got := m.state.replica.Newest().Digest(); got != digest {
			r.Fatalf("the restored state is %v, the committed one %v", got, digest)
		}
	})
}

func TestWrongRegistrationIsReported(t *testing.T) {
	s := NewState(nil)
	Tensor(s, "a", []float32{1})
	s.Object("a", new(int))
	s.Object("b", 5)
	err := Run(t.Context(), Options{}, s, nil)
	if err == nil || !strings.Contains(err.Error(), `"a" is registered twice`) || !strings.Contains(err.Error(), `"b": not a pointer`) {
		t.Errorf("error %v", err)
	}
}

func TestLayoutDependsOnTheSizeOfTensors(t *testing.T) {
	if newMixed(4).state.layout() == newMixed(5).state.layout() {
		t.Error("states of different size have the same layout")
	}
}
