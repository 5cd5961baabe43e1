package metadata

import "testing"

// FuzzMetadata: foreign bytes are refused, or the parts lie within them.
func FuzzMetadata(f *testing.F) {
	b, err := (&Metadata{Step: 7, Values: [][]byte{[]byte("one"), nil}}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		n := 0
		for _, v := range m.Values {
			n += len(v)
		}
		if n > len(b) {
			t.Fatalf("values of %d bytes in %d", n, len(b))
		}
	})
}
