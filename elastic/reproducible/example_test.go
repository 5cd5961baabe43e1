package reproducible_test

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/reproducible"
	"github.com/regroup-io/regroup/elastic/samples"
)

// A line is fitted to points of y = 3x + 1. Alone, as here, or with any workers of a job, whichever
// of them die: the weights have the same bits.
func ExampleAccumulator() {
	const points = 1000
	state := elastic.NewState(samples.NewSampler(points, 1))
	weights := make([]float32, 2)
	elastic.Tensor(state, "weights", weights)
	gradients := reproducible.New(state, "gradients", 2, 1) // of the weights, and the loss

	mean := make([]float32, 3)
	train := func(ctx context.Context, s *elastic.Session) error {
		for s.Epoch() < 10 {
			b := s.NextMicro(40, 8)
			err := gradients.Average(ctx, s, b, mean, func(_ int, indices []int, mean []float32) error {
				for _, i := range indices {
					x := float32(i) / points
					off := weights[0]*x + weights[1] - (3*x + 1)
					mean[0] += off * x / float32(len(indices))
					mean[1] += off / float32(len(indices))
					mean[2] += off * off / float32(len(indices))
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i := range weights {
				weights[i] -= mean[i]
			}
			if err := s.Commit(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := elastic.Run(context.Background(), elastic.Options{}, state, train); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("y = %.2fx + %.2f after %d steps\n", weights[0], weights[1], state.Step())
	// Output: y = 3.00x + 1.00 after 250 steps
}
