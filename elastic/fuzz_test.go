package elastic

import "testing"

// FuzzMetadata: foreign bytes are refused, or the parts lie within them.
func FuzzMetadata(f *testing.F) {
	b, err := (&metadata{Step: 7, values: [][]byte{[]byte("one"), nil}}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMetadata(b)
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
