package elastic

import (
	"time"

	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// reportCommit reports, of rank 0, the commit that all ranks have just made, zero if they are in
// sync and have made none yet, and how much the job can lose now. All of that is agreed: what ranks
// know that others do not is not in it.
func (s *Session) reportCommit(c workerprotocol.Commit) {
	if s.reporter == nil {
		return
	}
	report := workerprotocol.CommitReport{Commit: c, Ledger: s.state.Ledger()}
	whole, survives := s.state.replica.Last(), func() shards.Redundancy { return shards.Redundancy{Members: s.World - 1, Nodes: s.CrossSize - 1} }
	if s.state.shards != nil {
		whole, survives = s.state.shards.Whole()
	}
	if whole == (statesync.Commit{}) {
		s.reporter.Commit(report, nil)
		return
	}
	r := &workerprotocol.Redundancy{
		Generation: s.Generation, Commit: workerprotocol.Commit{Generation: whole.Generation, Step: whole.Step}, Made: s.state.replica.MadeAt(whole),
	}
	r.Checkpoint, r.Written = s.checkpointWritten()
	report.Redundancy = r
	s.reporter.Commit(report, func() {
		n := survives()
		r.Losses, r.NodeLosses = n.Members, n.Nodes
	})
}

// checkpointWritten returns the newest checkpoint that this rank knows to be whole, and when the
// writing of it began; nil = none.
func (s *Session) checkpointWritten() (*workerprotocol.Commit, time.Time) {
	n, began, ok := s.writer.Written()
	if !ok {
		return s.state.resumed(), time.Time{}
	}
	return &workerprotocol.Commit{Generation: n.Generation, Step: n.Step}, began
}
