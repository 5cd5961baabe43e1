package kernel

import (
	"bytes"
	"testing"
)

func TestCopies(t *testing.T) {
	each(t, func(t *testing.T, v *variant) {
		rng := source()
		sizes := append(lengths(), streamPiece-1, streamPiece, streamPiece+1, 2*streamPiece+4321)
		for i, n := range sizes {
			src, dst := fill(rng, Uint8, rng.IntN(64), n), fence(i%64, n)
			v.streamAll(dst.body, src.body)
			if !bytes.Equal(dst.body, src.body) {
				t.Fatalf("%d bytes: not a copy", n)
			}
			dst.check(t)
		}
	})
	for _, n := range []int{0, 1, 4096, streamPiece + 5} {
		src, dst := fill(source(), Uint8, 3, n), fence(7, n)
		Stream(dst.body, src.body)
		if !bytes.Equal(dst.body, src.body) {
			t.Fatalf("%d bytes: not a copy", n)
		}
	}
}
