package waterfall

import "testing"

// FuzzDecode checks that stored spans of any bytes are refused or shown.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x02, 0x12, 0x00})
	f.Add([]byte{0x0a, 0x0a, 0x12, 0x08, 0x12, 0x06, 0x2a, 0x04, 's', 't', 'e', 'p'})
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, err := Decode(b)
		if err != nil && len(spans) > 0 {
			t.Fatalf("refused, and yet %v", spans)
		}
	})
}
