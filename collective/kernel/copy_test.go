package kernel

import (
	"bytes"
	"testing"
)

func TestCopies(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		sizes := append(lengths(), beyondCache-1, beyondCache, streamPiece+1, 2*streamPiece+4321)
		for i, n := range sizes {
			src, dst := fill(rng, Uint8, rng.IntN(64), n), fence(i%64, n)
			v.streamAll(dst.body, src.body)
			if !bytes.Equal(dst.body, src.body) {
				t.Fatalf("%d bytes: not a copy", n)
			}
			dst.check(t)
		}
	})
	for _, n := range []int{0, 1, 4096, beyondCache + 5} {
		src, one, two := fill(source(), Uint8, 3, n), fence(5, n), fence(7, n)
		Copy(one.body, src.body)
		Stream(two.body, src.body)
		if !bytes.Equal(one.body, src.body) || !bytes.Equal(two.body, src.body) {
			t.Fatalf("%d bytes: not a copy", n)
		}
	}
}
