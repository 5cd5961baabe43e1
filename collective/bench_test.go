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

// BenchmarkEncrypted compares connections that are encrypted with those that are not. Both use the
// same code above the connection only if the plain ones are used as streams too.
func BenchmarkEncrypted(b *testing.B) {
	kinds := []struct {
		name string
		made func(Transport) *Endpoint
	}{
		{"plain", NewEndpoint},
		{"plain-stream", func(t Transport) *Endpoint { return NewEndpoint(&eavesdropper{Transport: t, deaf: true}) }},
		{"encrypted", NewEncryptedEndpoint},
	}
	for _, size := range []int{8, 4 << 10, 1 << 20, 16 << 20} {
		for _, kind := range kinds {
			b.Run(fmt.Sprintf("bytes=%d/%s", size, kind.name), func(b *testing.B) {
				eps := make([]*Endpoint, 2)
				for i := range eps {
					eps[i] = kind.made(listenTCP(b))
					b.Cleanup(func() { _ = eps[i].Close() })
				}
				comms := form(b, eps, 1, nil)
				defer closeAll(comms)
				b.SetBytes(int64(size))
				b.ResetTimer()
				mustAll(b, len(eps), func(r int) error {
					buf := make([]float32, size/4)
					for range b.N {
						if err := Allreduce(b.Context(), comms[r], buf, Sum); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}
