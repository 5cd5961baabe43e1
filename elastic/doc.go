// Package elastic lets a training program survive the loss and the arrival of workers without being
// restarted: the state returns to its last commit, the members regroup, and the training function
// is called again.
//
//	state := elastic.NewState(samples.NewSampler(60000, seed))
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
// One generation of a worker:
//
//	join ──► connect ──► sync ──► train ──► final commit ──► done
//	  ▲         │          │        │            │
//	  └─────────┴──────────┴────────┴────────────┘
//	    a peer is lost (back to the commit) or a change is planned (at a commit)
//
// Recovery always returns to a commit. It has the tensors, other values, the position in the data
// and the ledger of consumed samples as one unit; commits are ordered by (generation, step) and
// identified by a hash. At the start of a generation the newest commit that any member has wins,
// and the members that lack it receive it, in chunks from several holders (package statesync). With
// Options.Checkpoint commits are written to disk too, in case no member is left that has one, or
// the members have lost parts of a state that is sharded (package checkpoint).
//
// A step takes the same samples at every world size: Session.Next deals them evenly,
// Session.NextMicro in micro-batches of one size, and each sample has the same weight.
// ElasticSampler is for programs whose ranks have batches of their own. Package reproducible makes
// gradients whose bits do not depend on who computes what, so that no step is made twice.
//
// The model is that of Horovod Elastic (State, commit, restore, sync), except where that loses
// samples: the order of an epoch does not depend on the world size, a short batch is not padded,
// and what was really consumed is counted and proved.
//
// What this package does not do: it handles no signals, and it does not decide who is a member. The
// node's agent says so, over a Unix socket; without that socket a program runs stand-alone. Package
// elastictest runs whole jobs in one process, for tests of programs.
package elastic
