package elastic

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// Checkpoint says where commits are kept on disk, for when no worker is left that holds one. The zero value means not at all.
//
// Rank 0 writes the newest commit, beside training and never two at a time. One that is due while the one before is still
// being written is not written; the first commit after that is. When training is over or stopped the last commit is written before Run returns. A
// job whose members hold no commit begins with the newest checkpoint that is whole, at whatever world size.
type Checkpoint struct {
	Dir   string        // a folder that all workers share, or one of each node: whoever finds the newest brings it
	Every time.Duration // zero = 10 minutes. Too small: the disk is always busy; too large: more is lost when all workers die at once
	Keep  int           // how many are kept; zero = 3
}

func (c *Checkpoint) fromEnv() (err error) {
	c.Dir = os.Getenv(wire.EnvCheckpointDir)
	if every := os.Getenv(wire.EnvCheckpointEvery); every != "" {
		if c.Every, err = time.ParseDuration(every); err != nil {
			return fmt.Errorf("%s: %w", wire.EnvCheckpointEvery, err)
		}
	}
	if keep := os.Getenv(wire.EnvCheckpointKeep); keep != "" {
		if c.Keep, err = strconv.Atoi(keep); err != nil {
			return fmt.Errorf("%s: %w", wire.EnvCheckpointKeep, err)
		}
	}
	return nil
}

// writer puts checkpoints somewhere: a checkpoint.Folder.
type writer interface {
	Write(ctx context.Context, i checkpoint.Image) error
	Path(n checkpoint.Name) string
}

// saver writes commits of this worker to disk.
type saver struct {
	to     writer
	every  time.Duration
	shelf  *shelf
	layout string
	parts  []checkpoint.Part
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // ends what is under way when Run's ends

	mu      sync.Mutex
	busy    bool
	again   bool            // one that must be written came while busy
	began   time.Time       // the last one
	written checkpoint.Name // the last one that is on disk
	tasks   sync.WaitGroup
}

func newSaver(ctx context.Context, to writer, o Checkpoint, s *State, log *slog.Logger) *saver {
	w := &saver{to: to, every: o.Every, shelf: s.shelf, log: log, ctx: ctx, began: time.Now()}
	w.describe(s)
	return w
}

// describe records what the state consists of, before anything is written. A nil saver has no use for it.
func (w *saver) describe(s *State) {
	if w == nil {
		return
	}
	w.layout, w.parts = s.layout().String(), nil
	for _, t := range s.tensors {
		w.parts = append(w.parts, checkpoint.Part{Name: t.name, Type: t.kind, At: int64(t.at), Bytes: int64(len(t.memory))})
	}
}

// committed is told of each commit, and writes it if it is time to, or if it must be written.
func (w *saver) committed(must bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.busy:
		w.again = w.again || must
	case must || time.Since(w.began) >= w.every:
		w.busy, w.began = true, time.Now()
		w.tasks.Go(w.run)
	}
}

func (w *saver) run() {
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

// write writes what is held now.
func (w *saver) write() {
	s, unpin := w.shelf.pinHeld()
	if s == nil {
		return
	}
	defer unpin()
	w.shelf.spare(s) // so that the trainer has where to commit
	began := time.Now()
	n, err := w.name(s)
	if err == nil {
		err = w.to.Write(w.ctx, checkpoint.Image{Name: n, Layout: w.layout, Parts: w.parts, Meta: s.meta, Data: s.data})
	}
	if err != nil {
		w.log.Error("no checkpoint was written", "checkpoint", n, "err", err)
		return
	}
	w.log.Info("checkpoint written", "checkpoint", n, "path", w.to.Path(n), "took", time.Since(began))
	w.mu.Lock()
	w.written = n
	w.mu.Unlock()
}

func (w *saver) name(s *snapshot) (n checkpoint.Name, err error) {
	m, err := decodeMeta(s.meta)
	n.Life = m.Life
	n.Generation, n.Step = w.shelf.named(s)
	return n, err
}

// finish has the newest commit on disk when it returns, if that can be.
func (w *saver) finish() {
	if w == nil {
		return
	}
	w.tasks.Wait()
	s, unpin := w.shelf.pinHeld()
	if s == nil {
		return
	}
	defer unpin()
	if n, err := w.name(s); err == nil && n != w.written && w.ctx.Err() == nil {
		w.write()
	}
}

// close waits for what is under way.
func (w *saver) close() {
	if w != nil {
		w.tasks.Wait()
	}
}
