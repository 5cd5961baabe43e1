package statesync

import (
	"bytes"
	"testing"
)

// FuzzMessage: a body is never longer than the limit, and what was written is read.
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
