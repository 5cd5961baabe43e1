package elastic

import (
	"bytes"

	"github.com/zeebo/xxh3"
)

// mark is the hash of a leaf. Its only enemy is chance: who knows the token of a generation can do worse than to forge a
// leaf. So it need not withstand an attack, but two different leaves must never have the same mark by accident, and it
// must cost little beside moving the leaf: XXH3 of 128 bits (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), which reads a
// leaf that is in the cache at about 90 GB/s on a core, and one that is not as fast as the memory gives it. GMAC makes 8 (ADR 19).
type mark [16]byte

func markOf(leaf []byte) mark { return xxh3.Hash128(leaf).Bytes() }

// encodeMarks puts marks one after the other; decodeMarks takes them apart, and markAt one of them.
func encodeMarks(marks []mark) []byte {
	var b bytes.Buffer
	for i := range marks {
		b.Write(marks[i][:])
	}
	return b.Bytes()
}

func decodeMarks(b []byte) []mark {
	marks := make([]mark, len(b)/len(mark{}))
	for i := range marks {
		marks[i] = markAt(b, i)
	}
	return marks
}

func markAt(b []byte, i int) mark { return mark(b[i*len(mark{}) : (i+1)*len(mark{})]) }
