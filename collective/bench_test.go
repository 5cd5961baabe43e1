package collective

import (
	"fmt"
	"testing"
)

func BenchmarkAllreduce(b *testing.B) {
	for _, world := range []int{2, 4} {
		for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
			b.Run(fmt.Sprintf("tcp/ranks=%d/bytes=%d", world, size), func(b *testing.B) {
				comms := group(b, fabrics()[1], world, nil)
				bufs := make([][]float32, world)
				for r := range bufs {
					bufs[r] = make([]float32, size/4)
				}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				mustAll(b, world, func(r int) error {
					for range b.N {
						if err := Allreduce(b.Context(), comms[r], bufs[r], Sum); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
