package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
)

func sampleDocument(size int) Document {
	state, err := json.Marshal(map[string]any{"view": events.NodeView{Node: "node-a", Slots: 8}, "pad": strings.Repeat("é", size)})
	if err != nil {
		panic(err)
	}
	return Document{
		Schema: Schema, Version: 7, State: state, Applied: []string{"/a|1", "/a|2"},
		Number: map[events.Family]uint64{events.FamilyNode: 3}, Outbox: []broker.Message{{Subject: "s", ID: "i", Header: map[string][]string{"ce-id": {"1"}}, Data: []byte{0, 255}}},
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	for _, size := range []int{0, compressOver, 1 << 20} {
		want := sampleDocument(size)
		b, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if compressed := b[0] != '{'; compressed != (size >= compressOver) || compressed && len(b) > size {
			t.Errorf("size %d is stored in %d bytes, compressed = %v", size, len(b), compressed)
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("size %d: got %+v, %v", size, got, err)
		}
		view, err := View[events.NodeView](b)
		if err != nil || view.Node != "node-a" || view.Slots != 8 {
			t.Errorf("size %d: view %+v, %v", size, view, err)
		}
	}
}

func TestDocumentRefusals(t *testing.T) {
	for in, code := range map[string]errcode.Code{
		"": errcode.Invalid, "{": errcode.Invalid, "\x28\xb5\x2f\xfdgarbage": errcode.Invalid, "\x28\xb5\x2f\xfd": errcode.Invalid,
		`{"schema":2}`: errcode.Newer,
		// A newer schema may have changed every field: it must still be distinguished from garbage.
		`{"schema":2,"version":"x","applied":{}}`: errcode.Newer,
		`{"schema":1,"applied":{}}`:               errcode.Invalid,
	} {
		if _, err := Decode([]byte(in)); errcode.Of(err) != code {
			t.Errorf("%q: %v, want %s", in, err, code)
		}
	}
	if _, err := View[events.NodeView]([]byte(`{"schema":1}`)); errcode.Of(err) != errcode.Invalid {
		t.Errorf("a document without state: %v", err)
	}
}

// FuzzDecodeDocument: no input panics, and what is accepted survives a round trip.
func FuzzDecodeDocument(f *testing.F) {
	for _, size := range []int{0, compressOver} {
		b, err := Encode(sampleDocument(size))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(zstdMagic)
	f.Add([]byte(`{"schema":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err != nil {
			if c := errcode.Of(err); c != errcode.Invalid && c != errcode.Newer {
				t.Fatalf("refused with %q: %v", c, err)
			}
			return
		}
		again, err := Encode(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDocumentThatDecompressesToTooMuchIsNeverStored, because it could not be read again.
func TestDocumentThatDecompressesToTooMuchIsNeverStored(t *testing.T) {
	text, err := json.Marshal(strings.Repeat("x", limits.Unpacked.Max))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(Document{Schema: Schema, State: text}); !errors.Is(err, errcode.ErrTooLarge) {
		t.Errorf("it is stored: %v", err)
	}
}

// TestADocumentThatDecompressesToTooMuchIsRefused before it has cost the memory: anybody who may
// write a bucket could store one.
func TestADocumentThatDecompressesToTooMuchIsRefused(t *testing.T) {
	bomb := compressor.EncodeAll(make([]byte, limits.Unpacked.Max+1), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Decode(bomb)
	runtime.ReadMemStats(&after)
	if errcode.Of(err) != errcode.Invalid {
		t.Errorf("%d bytes: %v", len(bomb), err)
	}
	if cost := after.TotalAlloc - before.TotalAlloc; cost > uint64(2*limits.Unpacked.Max) {
		t.Errorf("refusing %d bytes costs %d", len(bomb), cost)
	}
}

// TestMemoryOfTheCodec: every service has one, and documents of many workers are long.
func TestMemoryOfTheCodec(t *testing.T) {
	var text []byte
	for i := range 10_000 {
		text = fmt.Appendf(text, " node-%04d/%d %016x", i/8, i%8, rand.Uint64())
	}
	kept := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := kept()
	w, r := makeCodec()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if got, err := r.DecodeAll(w.EncodeAll(text, nil), nil); err != nil || !bytes.Equal(got, text) {
					t.Error("the text has changed: ", err)
				}
			}
		})
	}
	all.Wait()
	if grown := kept() - before; grown > 4<<20 {
		t.Errorf("%d bytes are kept, at most 4 MiB are wanted", grown)
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(r)
}
