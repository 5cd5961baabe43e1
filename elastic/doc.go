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
// There is one way back, the commit. It holds tensors, other values, the place in the data and the ledger of consumed
// samples as one unit; commits are ordered by (generation, step) and named by a hash. At the start of a generation the
// newest one that any member holds wins, and those that lack it receive it, in stripes from several holders. With
// Options.Checkpoint commits are written to disk too: for when nobody is left who holds one.
//
// A step takes the same samples in every world: Session.Next deals them evenly, Session.NextMicro in micro-batches of one
// size; each sample has the same weight. ElasticSampler is for programs in which ranks have batches of their own.
//
// The model is that of Horovod Elastic (State, commit, restore, sync); it differs where that loses samples: the
// order of an epoch does not depend on the world size, a short batch is not padded, and what was really consumed is
// counted and proved.
//
// What this package does not do: it catches no signals, and it does not decide who is a member: the node's agent says so,
// over a Unix socket. Without that socket a program runs stand-alone. Package elastictest runs whole jobs in one process,
// for tests of programs.
package elastic
