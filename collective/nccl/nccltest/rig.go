package nccltest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective/kernel"
)

// Patience is the timeout of tests.
const Patience = 2 * time.Minute

// Rig is the fakes of a test binary.
type Rig struct {
	*Control
	Driver string // path of libcuda.so.1
	dir    string // of the libraries
}

// Main runs the tests of a package against fakes that it builds. In a process that Start started it
// plays the role instead. It returns the exit code.
func (r *Rig) Main(m *testing.M, roles map[string]func() error) int {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](); err != nil {
			fmt.Println("error", err)
			return 1
		}
		return 0
	}
	var err error
	if r.dir, err = os.MkdirTemp("", "fake"); err == nil {
		defer os.RemoveAll(r.dir)
		r.Driver, err = Driver(r.dir)
	}
	if err == nil {
		r.Control, err = Steer(r.Driver, r.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r.Knob("devices", 6)
	return m.Run()
}

// Steer controls the fake in a process that plays a role.
func (r *Rig) Steer() (err error) {
	r.Control, err = Steer(os.Getenv("REGROUP_CUDA_LIBRARY"), os.Getenv("REGROUP_FAKE_FOLDER"))
	return err
}

// Build builds a NCCL and returns its path.
func (r *Rig) Build(t *testing.T, v Variant) string {
	t.Helper()
	path, err := v.Library(r.dir)
	OK(t, err)
	return path
}

// Kinds are the kinds of objects that Living counts.
var Kinds = []string{"memory", "pinned", "streams", "events", "contexts", "communicators"}

// Audit checks when the test ends that no rule of NCCL was violated and nothing is leaked.
func (r *Rig) Audit(t *testing.T) {
	t.Helper()
	before := map[string]int64{}
	for _, k := range Kinds {
		before[k] = r.Living(k)
	}
	broken, _ := r.Violations()
	r.Calls()
	t.Cleanup(func() {
		if n, last := r.Violations(); n != broken {
			t.Errorf("%d rules broken, the last: %s", n-broken, last)
		}
		for _, k := range Kinds {
			if n := r.Living(k); n != before[k] {
				t.Errorf("%d %s are left", n-before[k], k)
			}
		}
		goleak.VerifyNone(t)
	})
}

// Turn sets a knob until the test ends, or release is called.
func (r *Rig) Turn(t *testing.T, name string, value int64) (release func()) {
	r.Knob(name, value)
	release = func() { r.Knob(name, 0) }
	t.Cleanup(release)
	return release
}

// Soon returns a context that ends after Patience.
func Soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// OK fails the test with an error.
func OK(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each runs f for every rank at once and returns the errors.
func Each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var g sync.WaitGroup
	for rank := range n {
		g.Go(func() { errs[rank] = f(rank) })
	}
	g.Wait()
	return errs
}

// All runs f for every rank at once, and fails the test with the errors.
func All(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	failed := false
	for rank, err := range Each(n, f) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			failed = true
		}
	}
	if failed {
		t.FailNow()
	}
}

// WaitFor waits until a condition holds. It polls: the fake libraries count, and notify nobody.
func WaitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("the condition did not come to hold")
		}
	}
}

// Encode writes numbers as elements of a type.
func Encode(t kernel.Type, numbers []float64) []byte {
	var b []byte
	e := binary.NativeEndian
	for _, v := range numbers {
		switch t {
		case kernel.Int8:
			b = append(b, byte(int8(v)))
		case kernel.Uint8:
			b = append(b, byte(v))
		case kernel.Int16:
			b = e.AppendUint16(b, uint16(int16(v)))
		case kernel.Int32:
			b = e.AppendUint32(b, uint32(int32(v)))
		case kernel.Int64:
			b = e.AppendUint64(b, uint64(int64(v)))
		case kernel.Float64:
			b = e.AppendUint64(b, math.Float64bits(v))
		case kernel.Float32:
			b = e.AppendUint32(b, math.Float32bits(float32(v)))
		case kernel.Float16, kernel.BFloat16:
			var half [2]byte
			kernel.Narrow(t, half[:], e.AppendUint32(nil, math.Float32bits(float32(v))))
			b = append(b, half[:]...)
		default:
			panic(t)
		}
	}
	return b
}

// Floats is the numbers 0, 1, 2 ... times k, plus add, as float32.
func Floats(n int, k, add float64) []byte {
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = k*float64(i) + add
	}
	return Encode(kernel.Float32, numbers)
}
