package nccl

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// All tests here are ABI conformance tests against the libraries of testdata/fake: see package
// nccltest for their scope.

// patience is the timeout of tests.
const patience = 20 * time.Second

var (
	dir    string // of the libraries
	driver string
	fake   *nccltest.Control
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	os.Exit(func() int {
		var err error
		if dir, err = os.MkdirTemp("", "fake"); err == nil {
			defer os.RemoveAll(dir)
			driver, err = nccltest.Driver(dir)
		}
		if err == nil {
			fake, err = nccltest.Steer(driver, dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fake.Knob("devices", 6)
		return m.Run()
	}())
}

func build(t *testing.T, v nccltest.Variant) string {
	t.Helper()
	path, err := v.Library(dir)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// library opens one version, and checks when the test ends that no rule of NCCL was violated and
// nothing is leaked.
func library(t *testing.T, version int) *Library {
	t.Helper()
	l, err := Open(Options{
		CUDA: driver, NCCL: build(t, nccltest.Variant{Version: version}),
		CallGrace: time.Second, WatchEvery: 2 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"memory", "pinned", "streams", "events", "contexts", "communicators"}
	before := map[string]int64{}
	for _, k := range kinds {
		before[k] = fake.Living(k)
	}
	broken, _ := fake.Violations()
	fake.Calls()
	t.Cleanup(func() {
		if n, last := fake.Violations(); n != broken {
			t.Errorf("%d rules broken, the last: %s", n-broken, last)
		}
		for _, k := range kinds {
			if n := fake.Living(k); n != before[k] {
				t.Errorf("%d %s are left", n-before[k], k)
			}
		}
		goleak.VerifyNone(t)
	})
	return l
}

// knob sets a knob until the test ends, or release is called.
func knob(t *testing.T, name string, value int64) (release func()) {
	fake.Knob(name, value)
	release = func() { fake.Knob(name, 0) }
	t.Cleanup(release)
	return release
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func device(t *testing.T, l *Library, ordinal int) *Device {
	t.Helper()
	d, err := l.OpenDevice(soon(t), ordinal)
	ok(t, err)
	t.Cleanup(func() {
		if err := d.Close(soon(t)); err != nil {
			t.Error(err)
		}
	})
	return d
}

// each runs f for every rank at once and returns the errors.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var g sync.WaitGroup
	for rank := range n {
		g.Go(func() { errs[rank] = f(rank) })
	}
	g.Wait()
	return errs
}

func all(t *testing.T, n int, f func(rank int) error) {
	t.Helper()
	failed := false
	for rank, err := range each(n, f) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			failed = true
		}
	}
	if failed {
		t.FailNow()
	}
}

// world creates a communicator of n ranks, each on its own device, with additional options. When
// the test ends they are closed, if they are not yet.
func world(t *testing.T, l *Library, n int, options func(rank int, o *CommOptions)) []*Comm {
	t.Helper()
	id, err := l.UniqueID()
	ok(t, err)
	comms, devices := make([]*Comm, n), make([]*Device, n)
	for rank := range n {
		devices[rank] = device(t, l, rank)
	}
	all(t, n, func(rank int) (err error) {
		o := CommOptions{Rank: rank, World: n, ID: id}
		if options != nil {
			options(rank, &o)
		}
		comms[rank], err = devices[rank].Init(soon(t), o)
		return err
	})
	ending(t, comms)
	return comms
}

// ending closes the communicators when the test ends.
func ending(t *testing.T, comms []*Comm) {
	comms = slices.Clone(comms)
	t.Cleanup(func() {
		for _, err := range each(len(comms), func(i int) error {
			if comms[i] == nil {
				return nil
			}
			if comms[i].Err() != nil {
				return comms[i].Abort(soon(t), context.Canceled)
			}
			return comms[i].Close(soon(t))
		}) {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

var kernelTypes = map[DataType]kernel.Type{Float16: kernel.Float16, BFloat16: kernel.BFloat16}

// encode writes numbers as elements of a type.
func encode(t DataType, numbers []float64) []byte {
	var b []byte
	for _, v := range numbers {
		switch t {
		case Int8:
			b = append(b, byte(int8(v)))
		case Uint8:
			b = append(b, byte(v))
		case Int32:
			b = binary.NativeEndian.AppendUint32(b, uint32(int32(v)))
		case Uint32:
			b = binary.NativeEndian.AppendUint32(b, uint32(v))
		case Int64:
			b = binary.NativeEndian.AppendUint64(b, uint64(int64(v)))
		case Uint64:
			b = binary.NativeEndian.AppendUint64(b, uint64(v))
		case Float64:
			b = binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
		case Float32:
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case Float16, BFloat16:
			var half [2]byte
			kernel.Narrow(kernelTypes[t], half[:], binary.NativeEndian.AppendUint32(nil, math.Float32bits(float32(v))))
			b = append(b, half[:]...)
		default:
			panic(t)
		}
	}
	return b
}

// upload returns a buffer of the device with these bytes; it is freed when the test ends.
func upload(t *testing.T, d *Device, b []byte) Buffer {
	t.Helper()
	ctx := soon(t)
	buffer, err := d.Alloc(ctx, len(b))
	ok(t, err)
	t.Cleanup(func() {
		if err := d.Free(soon(t), buffer); err != nil {
			t.Error(err)
		}
	})
	transfer(t, d, len(b), func(s *Stream, pinned []byte) error {
		copy(pinned, b)
		return s.ToDevice(ctx, buffer, pinned)
	})
	return buffer
}

// download reads a buffer.
func download(t *testing.T, b Buffer) []byte {
	t.Helper()
	var out []byte
	transfer(t, b.dev, b.bytes, func(s *Stream, pinned []byte) error {
		if err := s.ToHost(soon(t), pinned, b); err != nil {
			return err
		}
		if err := s.Wait(soon(t)); err != nil {
			return err
		}
		out = slices.Clone(pinned)
		return nil
	})
	return out
}

func transfer(t *testing.T, d *Device, size int, f func(*Stream, []byte) error) {
	t.Helper()
	ctx := soon(t)
	h, err := d.AllocHost(ctx, size)
	ok(t, err)
	s, err := d.NewStream(ctx)
	ok(t, err)
	ok(t, f(s, h.Bytes))
	ok(t, s.Wait(ctx))
	ok(t, s.Close(ctx))
	ok(t, h.Free(ctx))
}

// floats is the numbers 0, 1, 2 ... times k, plus add, as float32.
func floats(n int, k, add float64) []byte {
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = k*float64(i) + add
	}
	return encode(Float32, numbers)
}

func float(b []byte, i int) float64 {
	return float64(math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:])))
}

// sumsTo checks that an allreduce over the ranks' 1 + rank of n elements is right.
func sumsTo(t *testing.T, comms []*Comm) {
	t.Helper()
	const n = 20000 // more than the fake transfers at a time
	buffers := make([]Buffer, len(comms))
	for i, c := range comms {
		buffers[i] = upload(t, c.dev, floats(n, float64(i+1), 1))
	}
	all(t, len(comms), func(i int) error { return reduceInPlace(soon(t), comms[i], buffers[i]) })
	k := float64(len(comms) * (len(comms) + 1) / 2)
	want := floats(n, k, float64(len(comms)))
	for i, b := range buffers {
		if got := download(t, b); !slices.Equal(got, want) {
			t.Fatalf("rank %d: element 1 is %v, not %v", i, float(got, 1), float(want, 1))
		}
	}
}

func reduceInPlace(ctx context.Context, c *Comm, b Buffer) error {
	w, err := c.Do(ctx, nil, AllReduce(b, b, Float32, Sum))
	if err != nil {
		return err
	}
	return w.Wait(ctx)
}
