package gpu

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// The tests here run against libraries that need no GPU: see package nccltest for their scope.

var fake nccltest.Rig

func TestMain(m *testing.M) {
	os.Exit(fake.Main(m, map[string]func() error{"member": playMember}))
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

var errCaller = errors.New("the control plane said so")

// library opens one version, and audits it when the test ends.
func library(t *testing.T, version int) *nccl.Library {
	t.Helper()
	l, err := nccl.Open(nccl.Options{
		CUDA: fake.Driver, NCCL: fake.Build(t, nccltest.Variant{Version: version}),
		CallGrace: time.Second, WatchEvery: 2 * time.Millisecond,
	})
	ok(t, err)
	fake.Audit(t)
	return l
}

func device(t *testing.T, l *nccl.Library, ordinal int) *nccl.Device {
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

// upload returns a buffer of the device with these bytes; it is freed when the test ends.
func upload(t *testing.T, d *nccl.Device, b []byte) nccl.Buffer {
	t.Helper()
	buffer, err := d.Alloc(soon(t), len(b))
	ok(t, err)
	t.Cleanup(func() {
		if err := d.Free(soon(t), buffer); err != nil {
			t.Error(err)
		}
	})
	through(t, d, buffer, func(p []byte) { copy(p, b) })
	return buffer
}

// download reads a buffer of the device.
func download(t *testing.T, d *nccl.Device, b nccl.Buffer) (out []byte) {
	t.Helper()
	through(t, d, b, func(p []byte) { out = slices.Clone(p) })
	return out
}

// through passes a buffer to the host and back.
func through(t *testing.T, d *nccl.Device, b nccl.Buffer, visit func(p []byte)) {
	t.Helper()
	s, err := d.NewStage(soon(t), nccl.StageOptions{ChunkBytes: b.Bytes(), Depth: 1})
	ok(t, err)
	ok(t, s.Run(soon(t), nil, b, func(p []byte, _ int) error {
		visit(p)
		return nil
	}))
	ok(t, s.Close(soon(t)))
}
