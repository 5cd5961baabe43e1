package elastic

import (
	"bytes"
	"testing"

	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// FuzzOffer: an offer of foreign bytes is refused or comes back as it was.
func FuzzOffer(f *testing.F) {
	f.Add(offer{}.encode())
	f.Add(offer{standing: committed, name: checkpoint.Name{Generation: 3, Step: 7}, metaBytes: 100, hash: digest{1}, layout: digest{2}}.encode())
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOffer(b)
		if err != nil {
			return
		}
		if again, err := decodeOffer(o.encode()); err != nil || again != o {
			t.Fatalf("%+v became %+v, %v", o, again, err)
		}
		if newer(o, o) {
			t.Fatalf("%+v is newer than itself", o)
		}
	})
}

// FuzzMessage: a visitor's bytes are never taken for more than the limit, and what was written is read.
func FuzzMessage(f *testing.F) {
	var b bytes.Buffer
	if err := writeMessage(&b, 3, []byte("body")); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), 100)
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff}, 1<<20)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit %= 1 << 20
		kind, body, err := readMessage(bytes.NewReader(b), limit)
		if err != nil {
			return
		}
		if len(body) > max(limit, 0) {
			t.Fatalf("%d bytes were read, %d are the limit", len(body), limit)
		}
		var out bytes.Buffer
		if err := writeMessage(&out, kind, body); err != nil || !bytes.HasPrefix(b, out.Bytes()) {
			t.Fatalf("%x was read and %x written (%v)", b, out.Bytes(), err)
		}
	})
}

// FuzzMeta: foreign bytes are refused, or the parts lie within them.
func FuzzMeta(f *testing.F) {
	b, err := (&meta{Step: 7, values: [][]byte{[]byte("one"), nil}}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeta(b)
		if err != nil {
			return
		}
		n := 0
		for _, v := range m.values {
			n += len(v)
		}
		if n > len(b) {
			t.Fatalf("values of %d bytes in %d", n, len(b))
		}
	})
}
