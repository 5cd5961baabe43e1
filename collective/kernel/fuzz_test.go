package kernel

import (
	"slices"
	"testing"
)

// FuzzReduce: every variant agrees with the oracle on any bits, at any address.
func FuzzReduce(f *testing.F) {
	for _, elem := range allTypes {
		seed := make([]byte, 0, 1024)
		for _, bits := range special[elem] {
			seed = append(seed, make([]byte, elem.Size())...)
			put(elem, seed, len(seed)/elem.Size()-1, bits)
		}
		f.Add(uint8(elem), uint8(OpMax), uint8(1), slices.Concat(seed, seed, seed, seed))
	}
	f.Fuzz(func(t *testing.T, elem, op, offset uint8, data []byte) {
		typ, what := allTypes[int(elem)%len(allTypes)], allOps[int(op)%len(allOps)]
		n := len(data) / 2 / typ.Size()
		a, b := data[:n*typ.Size()], data[len(data)-n*typ.Size():]
		for _, v := range variants() {
			dst, src := fence(int(offset%64), len(a)), fence(int(offset/4), len(b))
			copy(dst.body, a)
			copy(src.body, b)
			v.combineAll(typ, what, n, dst.body, dst.body, src.body)
			expect(t, typ, dst.body, func(i int) uint64 { return combineOne(typ, what, get(typ, a, i), get(typ, b, i)) })
			dst.check(t)
		}
	})
}
