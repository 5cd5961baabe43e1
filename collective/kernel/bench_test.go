package kernel

import (
	"fmt"
	"testing"
)

// usual is memory that has been touched, with numbers near one.
func usual(t Type, bytes int) []byte {
	b, one := make([]byte, bytes), map[Type]uint64{Float16: 0x3c00, BFloat16: 0x3f80, Float32: 0x3f800000}[t]
	for i := range bytes / t.Size() {
		put(t, b, i, one+uint64(i%64))
	}
	return b
}

// BenchmarkReduce: bytes of the widest buffer per second, in the first cache and in the third.
func BenchmarkReduce(b *testing.B) {
	for _, bytes := range []int{64 << 10, 4 << 20} {
		for _, v := range variants() {
			run := func(name string, t Type, do func(n int, dst, src []byte)) {
				dst, src := usual(t, bytes), usual(t, bytes)
				b.Run(fmt.Sprintf("%s/%dKiB/%s", name, bytes>>10, v.name), func(b *testing.B) {
					b.SetBytes(int64(bytes))
					for b.Loop() {
						do(bytes/t.Size(), dst, src)
					}
				})
			}
			for _, t := range []Type{Float32, Float16, BFloat16} {
				run(t.String()+"/sum", t, func(n int, dst, src []byte) { v.combineAll(t, OpSum, n, dst, dst, src) })
				run(t.String()+"/max", t, func(n int, dst, src []byte) { v.combineAll(t, OpMax, n, dst, dst, src) })
			}
			run("float32/fixed", Int64, func(n int, dst, src []byte) { v.addFixedAll(fixedKernel, n, dst, src[:4*n], 0x1p40) })
			for _, t := range allHalves {
				run(t.String()+"/narrow", Float32, func(n int, dst, src []byte) { v.narrowAll(t, n, dst[:2*n], src) })
				run(t.String()+"/widen", t, func(n int, dst, src []byte) { v.widenAll(t, n/2, dst, src[:n]) })
				half := usual(t, bytes/2)
				run(t.String()+"/reducewiden", Float32, func(n int, dst, _ []byte) { v.reduceWidenAll(t, OpSum, n, dst, half) })
			}
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, bytes := range []int{256 << 10, 64 << 20} {
		dst, src := usual(Uint8, bytes), usual(Uint8, bytes)
		for name, do := range map[string]func(dst, src []byte){"Copy": func(dst, src []byte) { copy(dst, src) }, "Stream": Stream} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, bytes>>10), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				for b.Loop() {
					do(dst, src)
				}
			})
		}
	}
}
