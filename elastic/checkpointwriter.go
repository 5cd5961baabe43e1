package elastic

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/internal/metadata"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Checkpoint says where commits are kept on disk, in case no worker is left that has one. The zero
// value means not at all.
//
// Rank 0 writes the newest commit while training goes on, one at a time. A commit that is due while
// another is being written is skipped; the first commit after that is written. When training is
// over or stopped, the last commit is written before Run returns. A job whose members have no
// commit begins with the newest checkpoint that is intact, at any world size.
type Checkpoint struct {
	// Dir is shared by all workers, or is one on each node: the newest checkpoint is sent to the
	// others.
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

// checkpointSink is where checkpoints are written: a checkpoint.Dir.
type checkpointSink interface {
	Write(ctx context.Context, i checkpoint.Image) error
	Path(n checkpoint.Name) string
}

// checkpointWriter writes commits of this worker to disk. The methods of a nil writer do nothing.
type checkpointWriter struct {
	sink    checkpointSink
	every   time.Duration
	store   *statesync.CommitStore
	layout  string
	tensors []checkpoint.Tensor
	log     *slog.Logger
	ctx     context.Context //nolint:containedctx // of Run: its end interrupts a write
	// ask asks for the space of a checkpoint; nil = there is no bound.
	ask func(ctx context.Context, bytes int64) error

	mu      sync.Mutex
	off     bool // nothing is written
	busy    bool
	again   bool            // a commit that must be written arrived while busy
	began   time.Time       // the last write
	written checkpoint.Name // the last one on disk
	failed  string          // the last reason that was logged why there was none
	tasks   sync.WaitGroup
}

// complete sets defaults.
func (c *Checkpoint) complete() {
	every, keep := 10*time.Minute, 3
	if c.OfJob {
		every, keep = 5*time.Minute, 1
	}
	c.Every, c.Keep = cmp.Or(c.Every, every), cmp.Or(c.Keep, keep)
}

func newCheckpointWriter(ctx context.Context, sink checkpointSink, o Checkpoint, s *State, log *slog.Logger) *checkpointWriter {
	w := &checkpointWriter{sink: sink, every: o.Every, store: s.replica.Store(), log: log, ctx: ctx, began: time.Now()}
	w.describe(s)
	return w
}

// describe records the layout of the state, before anything is written.
func (w *checkpointWriter) describe(s *State) {
	if w == nil {
		return
	}
	w.layout, w.tensors = s.layout().String(), nil
	for _, t := range s.replica.Tensors.All() {
		w.tensors = append(w.tensors, checkpoint.Tensor{Name: t.Name, Type: t.Type, Offset: int64(t.Offset), Bytes: int64(len(t.Memory))})
	}
}

// committed is called after each commit. It starts a write if one is due, or if this commit must be
// written.
func (w *checkpointWriter) committed(must bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.off:
	case w.busy:
		w.again = w.again || must
	case must || time.Since(w.began) >= w.every:
		w.busy, w.began = true, time.Now()
		w.tasks.Go(w.run)
	}
}

// due reports whether the next commit will be written.
func (w *checkpointWriter) due() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.off && !w.busy && time.Since(w.began) >= w.every
}

func (w *checkpointWriter) run() {
	for {
		w.write()
		w.mu.Lock()
		if !w.again || w.ctx.Err() != nil {
			w.busy = false
			w.mu.Unlock()
			return
		}
		w.again, w.began = false, time.Now()
		w.mu.Unlock()
	}
}

func (w *checkpointWriter) write() {
	s, unpin := w.store.PinNewest()
	if s == nil {
		return
	}
	defer unpin()
	w.store.Reserve(s) // so that the trainer can commit meanwhile
	began := time.Now()
	n, err := w.name(s)
	if err == nil {
		err = w.writeImage(checkpoint.Image{Name: n, Layout: w.layout, Tensors: w.tensors, Meta: s.Meta(), Data: s.Data()})
	}
	if err != nil {
		w.complain(n, err)
		return
	}
	w.log.Info("checkpoint written", "checkpoint", n, "path", w.sink.Path(n), "took", time.Since(began))
	w.mu.Lock()
	w.written, w.failed = n, ""
	w.mu.Unlock()
}

// writeImage writes a checkpoint if there is space for it.
func (w *checkpointWriter) writeImage(i checkpoint.Image) error {
	if w.ask != nil {
		if err := w.ask(w.ctx, i.Bytes()); err != nil {
			return err
		}
	}
	return w.sink.Write(w.ctx, i)
}

// complain says once why there is no checkpoint: the next ones often fail for the same reason. That
// a folder of the agent's is removed, or that it grants no more, is no fault when the job ends.
func (w *checkpointWriter) complain(n checkpoint.Name, err error) {
	if w.ask != nil && (agentclient.Ending(err) || errors.Is(err, fs.ErrNotExist)) {
		w.log.Info("no checkpoint was written", "checkpoint", n, "err", err)
		return
	}
	w.mu.Lock()
	again := w.failed == err.Error()
	w.failed = err.Error()
	w.mu.Unlock()
	if !again {
		w.log.Error("no checkpoint was written", "checkpoint", n, "err", err)
	}
}

func (w *checkpointWriter) name(s *statesync.Snapshot) (n checkpoint.Name, err error) {
	m, err := metadata.Decode(s.Meta())
	n.Run = m.Run
	n.Generation, n.Step = w.store.Version(s)
	return n, err
}

// disable makes the writer write nothing.
func (w *checkpointWriter) disable() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = true
}

// flush returns when the newest commit is on disk, or cannot be written.
func (w *checkpointWriter) flush() {
	if w == nil {
		return
	}
	w.tasks.Wait()
	if w.off {
		return
	}
	s, unpin := w.store.PinNewest()
	if s == nil {
		return
	}
	defer unpin()
	if n, err := w.name(s); err == nil && n != w.written && w.ctx.Err() == nil {
		w.write()
	}
}

func (w *checkpointWriter) close() {
	if w != nil {
		w.tasks.Wait()
	}
}
