package reproducible

import (
	"context"
	"fmt"
	"testing"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
)

// BenchmarkStep is what a step costs beside the computation of its eight micro-batches, of which
// only a copy of a million gradients is left: with an Accumulator, and as floats. Ranks use TCP and
// shared memory as jobs do.
func BenchmarkStep(b *testing.B) {
	const elements, micros = 1 << 20, 8
	gradient := make([]float32, elements)
	for i := range gradient {
		gradient[i] = float32(i%1001) / 1001
	}
	compute := func(mean []float32) error {
		copy(mean, gradient)
		return nil
	}
	for _, world := range []int{1, 2} {
		for _, kind := range []string{"floats", "reproducible"} {
			b.Run(fmt.Sprintf("%s/ranks=%d", kind, world), func(b *testing.B) {
				hub := elastictest.New(b, world)
				ended := make(chan error)
				for i := range world {
					state, mean := elastic.NewState(samples.NewSampler(1<<40, 1)), make([]float32, elements)
					a := New(state, "gradients", elements)
					var floats samples.Mean
					step := func(ctx context.Context, s *elastic.Session) error {
						batch := s.NextMicro(micros, 1)
						if kind == "reproducible" {
							return a.Average(ctx, s, batch, mean, func(_ int, _ []int, mean []float32) error { return compute(mean) })
						}
						if err := floats.Of(batch, mean, func(_ []int, mean []float32) error { return compute(mean) }); err != nil {
							return err
						}
						return s.AverageGradients(ctx, batch, mean)
					}
					name := fmt.Sprint("w", i)
					ctx, _ := hub.Start(b, name)
					go func() {
						err := elastic.Run(ctx, elastic.Options{Job: "bench", Socket: hub.Socket, Token: name}, state, func(ctx context.Context, s *elastic.Session) error {
							if err := step(ctx, s); err != nil { // the first one takes longer
								return err
							}
							if s.Rank == 0 {
								b.ResetTimer()
							}
							for range b.N {
								if err := step(ctx, s); err != nil {
									return err
								}
							}
							if s.Rank == 0 {
								b.StopTimer()
							}
							return nil
						})
						hub.Ended(name, err)
						ended <- err
					}()
				}
				for range world {
					if err := <-ended; err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
}

// BenchmarkNorm is of a million gradients.
func BenchmarkNorm(b *testing.B) {
	g := make([]float32, 1<<20)
	for i := range g {
		g[i] = float32(i)
	}
	b.SetBytes(4 << 20)
	for b.Loop() {
		Norm(g)
	}
}
