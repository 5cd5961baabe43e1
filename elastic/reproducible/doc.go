// Package reproducible makes gradients whose bits do not depend on how many workers there are, or
// on who died when: a training ends with the same weights, to the bit, whatever happens to its
// members. Nothing is computed twice but the micro-batches that only a dead member had.
//
//	state := elastic.NewState(samples.NewSampler(60000, seed))
//	elastic.Tensor(state, "weights", weights)
//	gradients := reproducible.New(state, "gradients", len(weights), 1)
//	mean := make([]float32, len(weights)+1)
//	err := elastic.Run(ctx, options, state, func(ctx context.Context, s *elastic.Session) error {
//		for s.Epoch() < epochs {
//			b := s.NextMicro(64, 16)
//			err := gradients.Average(ctx, s, b, mean, func(m int, indices []int, mean []float32) error {
//				mean[len(weights)] = backward(indices, mean[:len(weights)]) // the loss
//				return nil
//			})
//			if err != nil {
//				return err
//			}
//			reproducible.ClipNorm(mean[:len(weights)], 1)
//			update(weights, mean)
//			if err := s.Commit(ctx); err != nil {
//				return err
//			}
//		}
//		return nil
//	})
//
// Sums of floats depend on their order, those of integers do not. Each micro-batch's gradient
// becomes integers of 64 bits, g * 2^shift rounded to nearest, which are added up on each rank and
// then over all. The shift of a part comes from the largest gradient that it had in the step
// before, which is part of the state, and leaves room for 4096 times as much.
//
//	a step    each rank adds up its micro-batches ──► greatest magnitudes ──► sum ──► mean
//	a loss    the others keep what they have added up. The first Average of the next generation
//	          says what is there, deals out the rest, also to newcomers, and ends the step
//	a growth  all ranks see it if gradients are more than 4096 times as large as in the step before,
//	          or if fewer than 24 bits of them are left, and compute the step's micro-batches again
//
// What a program must do for it: compute a micro-batch's gradient from the state and the
// micro-batch alone, with the same bits on every rank (one kind of processor), and commit after
// each step. Where it commits less often, the bits are the same too, but steps since the commit are
// made again, as always. A loss within the commit takes the step's update back, not its gradients;
// one within Session.CommitLive takes nothing back.
//
// CheckState finds a rank whose state is not that of the others, and has `regroup verify` compare
// two trainings; Accumulator.Witness finds one whose gradients are wrong. What this package does
// not do: go back to a commit from before a rank was wrong, or leave the parts of a gradient with
// different ranks. Package regroup.torch.reproducible for Python does.
package reproducible
