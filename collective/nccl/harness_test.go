package nccl

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// All tests here are ABI conformance tests against the libraries of testdata/fake: see package
// nccltest for their scope.

var fake nccltest.Rig

func TestMain(m *testing.M) {
	os.Exit(fake.Main(m, map[string]func() error{"open": playOpen, "rank": playRank}))
}

// What every test here needs of package nccltest.
var (
	soon    = nccltest.Soon
	ok      = nccltest.OK
	each    = nccltest.Each
	all     = nccltest.All
	waitFor = nccltest.WaitFor
	floats  = nccltest.Floats
)

// library opens one version, and checks when the test ends that no rule of NCCL was violated and
// nothing is leaked.
func library(t *testing.T, version int) *Library {
	t.Helper()
	l, err := Open(Options{
		CUDA: fake.Driver, NCCL: fake.Build(t, nccltest.Variant{Version: version}),
		CallGrace: time.Second, WatchEvery: 2 * time.Millisecond,
	})
	ok(t, err)
	fake.Audit(t)
	return l
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

var kernelTypes = map[DataType]kernel.Type{
	Int8: kernel.Int8, Uint8: kernel.Uint8, Int32: kernel.Int32, Int64: kernel.Int64,
	Float16: kernel.Float16, BFloat16: kernel.BFloat16, Float32: kernel.Float32, Float64: kernel.Float64,
}

// encode writes numbers as elements of a type.
func encode(t DataType, numbers []float64) (b []byte) {
	for _, v := range numbers {
		switch t {
		case Uint32:
			b = binary.NativeEndian.AppendUint32(b, uint32(v))
		case Uint64:
			b = binary.NativeEndian.AppendUint64(b, uint64(v))
		default:
			return nccltest.Encode(kernelTypes[t], numbers)
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
