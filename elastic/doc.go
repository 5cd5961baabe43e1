// Package elastic is what a training program imports to survive the loss and the arrival of workers, without being
// started again: the state returns to its last commit, the members regroup, and the training function is called again.
//
//	state := elastic.NewState(elastic.NewSampler(60000, seed))
//	elastic.Tensor(state, "weights", weights)
//	err := elastic.Run(ctx, options, state, func(ctx context.Context, s *elastic.Session) error {
//		for s.Epoch() < epochs {
//			batch := s.Next(64)
//			gradients := backward(batch.Indices)
//			if err := s.AverageGradients(ctx, batch, gradients); err != nil {
//				return err
//			}
//			update(weights, gradients)
//			if s.CommitDue(10) {
//				if err := s.Commit(ctx); err != nil {
//					return err
//				}
//			}
//		}
//		return nil
//	})
//
// One generation, as a worker lives it:
//
//	join ──► build ──► sync ──► train ──► final commit ──► done
//	  ▲        │         │        │            │
//	  └────────┴─────────┴────────┴────────────┘
//	    a peer is lost (back to the commit) or a change is planned (at a commit)
//
// There is one way back, the commit. It holds tensors, objects, the place in the data and the ledger of consumed
// samples as one unit; commits are ordered by (generation, step) and named by a hash. At the start of a generation the
// newest one that any member holds wins, and those that lack it receive it.
//
// The model is that of Horovod Elastic (State, commit, restore, sync); it differs where that loses samples: the
// order of an epoch does not depend on the world size, a short batch is not padded, and what was really consumed is
// counted and proved.
//
// What this package does not do: it writes no checkpoint to disk, it catches no signals, and it does not decide who is
// a member: the node's agent says so, over a Unix socket. Without that socket a program runs stand-alone.
package elastic
