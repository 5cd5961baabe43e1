package nccl

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/regroup-io/regroup/collective/nccl/nccltest"
)

// inC are the names of config's fields in nccl.h, in order.
var inC = []string{
	"size", "magic", "version", "blocking", "cgaClusterSize", "minCTAs", "maxCTAs", "netName", "splitShare", "trafficClass",
	"commName", "collnetEnable", "CTAPolicy", "shrinkShare", "nvlsCTAs", "nChannelsPerNetPeer", "nvlinkCentricSched",
	"graphUsageMode", "numRmaCtx", "maxP2pPeers", "graphStreamOrdering",
}

func TestTheConfigurationIsLaidOutAsInCForEveryVersion(t *testing.T) {
	sizes := map[int]uintptr{21403: 24, 21801: 48, 22703: 72, 22809: 80, 22902: 88, 23007: 96}
	for version, size := range sizes {
		var fields func() int32
		var name func(int32) string
		var offset func(int32) int64
		var bytes func() int64
		h, err := purego.Dlopen(fake.Build(t, nccltest.Variant{Version: version}), purego.RTLD_NOW)
		ok(t, err)
		purego.RegisterLibFunc(&fields, h, "fakeConfigFields")
		purego.RegisterLibFunc(&name, h, "fakeConfigField")
		purego.RegisterLibFunc(&offset, h, "fakeConfigOffset")
		purego.RegisterLibFunc(&bytes, h, "fakeConfigBytes")
		if got := uintptr(bytes()); got != size {
			t.Errorf("%d: %d bytes in C, want %d", version, got, size)
		}
		ours := reflect.TypeFor[config]()
		for i := range fields() {
			f := ours.Field(int(i))
			if name(i) != inC[i] || uintptr(offset(i)) != f.Offset {
				t.Errorf("%d: field %d is %s at %d in C, %s at %d here", version, i, name(i), offset(i), f.Name, f.Offset)
			}
		}
		if version == 23007 && (int(fields()) != ours.NumField() || unsafe.Sizeof(config{}) != size) {
			t.Errorf("%d fields in C, %d here in %d bytes", fields(), ours.NumField(), unsafe.Sizeof(config{}))
		}
		if version == 22703 && configSize != size {
			t.Errorf("we say %d bytes, a header of 2.27 says %d", configSize, size)
		}
	}
}

func TestTheLibraryReadsFromTheConfigurationWhatWasSet(t *testing.T) {
	l := library(t, 22703)
	c := world(t, l, 1, func(_ int, o *CommOptions) { o.Name = "regroup" })
	var seen func(int32) int64
	h, err := purego.Dlopen(fake.Build(t, nccltest.Variant{Version: 22703}), purego.RTLD_NOW)
	ok(t, err)
	purego.RegisterLibFunc(&seen, h, "fakeConfigSeen")
	want := []int64{72, 22700, 0, undefined, undefined, undefined, 0, undefined, undefined, int64(len("regroup")), undefined, undefined, undefined, undefined}
	for i, w := range want {
		if got := seen(int32(i)); got != w {
			t.Errorf("value %d is %d, not %d", i, got, w)
		}
	}
	sumsTo(t, c)
}
