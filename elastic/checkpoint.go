package elastic

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/checkpointwriter"
	"github.com/regroup-io/regroup/elastic/internal/metadata"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Checkpoint says where commits are kept on disk, in case no worker is left that has one. The zero
// value means not at all.
//
// Rank 0 writes the newest commit while training goes on, one at a time. A commit that is due while
// another is being written is skipped; the first commit after that is written. When training is
// over or stopped, the last commit is written before Run returns. A job whose members have no
// commit begins with the newest checkpoint that is intact, at any world size.
//
// Of a sharded state all ranks write the same commit, each its own parts, into files that
// torch.distributed.checkpoint reads too. Such a checkpoint counts when the members can read all of
// it together. They go back to it also when parts of all commits are lost.
type Checkpoint struct {
	// Dir is shared by all workers, or is one on each node: the newest checkpoint is sent to the
	// others. Of a sharded state each node then has the parts of its ranks.
	Dir string
	// Every is the interval; zero = 10 minutes, 5 with OfJob. Too small: the disk is always busy;
	// too large: more is lost when all workers die at once.
	Every time.Duration
	// Keep is the number of checkpoints that are kept; zero = 3, 1 with OfJob.
	Keep int
	// OfJob says that the agent has chosen Dir: it removes it when the job ends, and grants the
	// space of each checkpoint. The training does not depend on it: a checkpoint with another
	// layout is ignored, and nothing is written when the training is over.
	OfJob bool
}

func (c *Checkpoint) fromEnv() error {
	var chosen bool
	if c.Dir, chosen = os.LookupEnv(workerprotocol.EnvCheckpointDir); !chosen {
		c.Dir = os.Getenv(workerprotocol.EnvCheckpointDefaultDir)
		c.OfJob = c.Dir != ""
	}
	return errors.Join(
		parseEnv(workerprotocol.EnvCheckpointEvery, &c.Every, time.ParseDuration),
		parseEnv(workerprotocol.EnvCheckpointKeep, &c.Keep, strconv.Atoi),
	)
}

// complete sets defaults.
func (c *Checkpoint) complete() {
	every, keep := 10*time.Minute, 3
	if c.OfJob {
		every, keep = 5*time.Minute, 1
	}
	c.Every, c.Keep = cmp.Or(c.Every, every), cmp.Or(c.Keep, keep)
}

// openCheckpoints makes the state begin with the newest checkpoint, if no member has a commit, and
// starts to write commits to disk.
func (r *runner) openCheckpoints(ctx context.Context) error {
	o := r.options
	dir, err := checkpoint.Open(o.Checkpoint.Dir, o.Checkpoint.Keep)
	if err != nil {
		return err
	}
	if err := r.state.useCheckpoints(dir, o.Checkpoint.OfJob, o.Log); err != nil {
		return err
	}
	writer := checkpointwriter.Options{
		Dir: dir, Every: o.Checkpoint.Every, Store: r.state.replica.Store(), Run: runOf, Log: o.Log, Temporary: o.Checkpoint.OfJob,
	}
	if o.Checkpoint.OfJob && o.Socket != "" {
		writer.Ask = func(ctx context.Context, bytes int64) error {
			return r.agent.Checkpoint(ctx, workerprotocol.CheckpointRequest{Bytes: bytes})
		}
	}
	r.writer, r.disk = checkpointwriter.New(ctx, writer), &shards.Disk{Dir: dir, Skip: o.Checkpoint.OfJob, Log: o.Log}
	r.describe()
	return nil
}

// describe tells the writer the layout of the state.
func (r *runner) describe() {
	r.writer.Describe(r.state.layout().String(), r.state.replica.Tensors.All())
}

// flush has the last commit written, at the end of the training or when it is stopped. Of a sharded
// state it was with the commit.
func (r *runner) flush(rank int, end bool) {
	if rank == 0 && r.state.shards == nil {
		r.writer.Flush(end)
	}
}

// runOf returns which run of the job a commit is of.
func runOf(meta []byte) (uint64, error) {
	m, err := metadata.Decode(meta)
	return m.Run, err
}
