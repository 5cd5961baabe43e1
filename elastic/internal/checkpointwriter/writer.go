// Package checkpointwriter writes commits to disk while training goes on.
//
// Of a state that is the same on all ranks, rank 0 writes the newest commit (Committed). Of one of
// which each rank has parts, all ranks write the same commit, each its own parts, and rank 0 what
// is not sharded. They settle with each commit which one to write, and learn with a later one that
// all have written it (Propose, Decide):
//
//	commit 7       all write their parts of 7       commit 9: nobody is busy    commit 10
//	───┬─────────────────────────────────────────────────┬──────────────────────────────
//	   due                                               7 is whole: older ones go
//
// What this package does not do: it makes no commits, and does not decide with which checkpoint a
// job begins.
package checkpointwriter

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/agentclient"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// Dir is where checkpoints are written: a checkpoint.Dir.
type Dir interface {
	Write(ctx context.Context, i checkpoint.Image) error
	Path(n checkpoint.Name) string
	parts
}

type parts interface {
	WriteParts(ctx context.Context, s checkpoint.Set, rank, world int, parts []checkpoint.Part) error
	FinishParts(s checkpoint.Set) error
	AbandonParts(s checkpoint.Set) error
	PruneParts(newest checkpoint.Set) error
	PartsPath(s checkpoint.Set) string
}

// Options of a writer.
type Options struct {
	Dir   Dir
	Every time.Duration
	Store *statesync.CommitStore
	// Run returns which run of the job a commit is of, from its metadata.
	Run func(meta []byte) (uint64, error)
	Log *slog.Logger
	// Ask asks for the space of a checkpoint in a folder of the agent's; nil = there is no bound.
	Ask func(ctx context.Context, bytes int64) error
	// Temporary says that the directory is removed when the job ends: nothing is written then.
	Temporary bool
}

// Writer writes commits of this worker to disk. The methods of a nil writer do nothing.
type Writer struct {
	Options

	layout  string
	tensors []checkpoint.Tensor
	ctx     context.Context //nolint:containedctx // of Run: its end interrupts a write

	mu      sync.Mutex
	busy    bool
	again   bool            // a commit that must be written arrived while busy
	began   time.Time       // the last write
	written checkpoint.Name // the last one on disk
	since   time.Time       // when the writing of it began
	failed  string          // the last reason that was logged why there was none
	tasks   sync.WaitGroup

	sharded sharded
}

// New returns a writer. The end of ctx interrupts what it writes.
func New(ctx context.Context, o Options) *Writer {
	return &Writer{Options: o, ctx: ctx, began: time.Now()}
}

// Describe records the layout of the state, before anything is written.
func (w *Writer) Describe(layout string, tensors []statesync.Tensor) {
	if w == nil {
		return
	}
	w.layout, w.tensors = layout, nil
	for _, t := range tensors {
		w.tensors = append(w.tensors, checkpoint.Tensor{Name: t.Name, Type: t.Type, Offset: int64(t.Offset), Bytes: int64(len(t.Memory))})
	}
}

// Committed is called after each commit. It starts a write if one is due, or if this commit must be
// written.
func (w *Writer) Committed(must bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.busy:
		w.again = w.again || must
	case must || time.Since(w.began) >= w.Every:
		w.busy, w.began = true, time.Now()
		w.tasks.Go(w.run)
	}
}

// Due reports whether Committed will write the next commit.
func (w *Writer) Due() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.busy && time.Since(w.began) >= w.Every
}

func (w *Writer) run() {
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

func (w *Writer) write() {
	s, unpin := w.Store.PinNewest()
	if s == nil {
		return
	}
	defer unpin()
	w.Store.Reserve(s) // so that the trainer can commit meanwhile
	began := time.Now()
	n, err := w.name(s)
	if err == nil {
		i := w.image(n, s)
		if err = w.ask(i.Bytes()); err == nil {
			err = w.Dir.Write(w.ctx, i)
		}
	}
	if err != nil {
		w.complain(n, err)
		return
	}
	w.report(n, w.Dir.Path(n), began)
}

func (w *Writer) report(n checkpoint.Name, path string, began time.Time) {
	w.Log.Info("checkpoint written", "checkpoint", n, "path", path, "took", time.Since(began))
	w.mu.Lock()
	w.written, w.since, w.failed = n, began, ""
	w.mu.Unlock()
}

// Written is the newest checkpoint that this worker knows to be written as a whole, and when the
// writing of it began; ok is false if there is none.
func (w *Writer) Written() (n checkpoint.Name, began time.Time, ok bool) {
	if w == nil {
		return n, began, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written, w.since, !w.since.IsZero()
}

func (w *Writer) image(n checkpoint.Name, s *statesync.Snapshot) checkpoint.Image {
	return checkpoint.Image{Name: n, Layout: w.layout, Tensors: w.tensors, Meta: s.Meta(), Data: s.Data()}
}

// ask returns an error if there is no space for a checkpoint.
func (w *Writer) ask(bytes int64) error {
	if w.Ask == nil {
		return nil
	}
	return w.Ask(w.ctx, bytes)
}

// complain says once why there is no checkpoint: the next ones often fail for the same reason. That
// a folder of the agent's is removed, or that it grants no more, is no fault when the job ends.
func (w *Writer) complain(n checkpoint.Name, err error) {
	if w.Ask != nil && (agentclient.Ending(err) || errors.Is(err, fs.ErrNotExist)) {
		w.Log.Info("no checkpoint was written", "checkpoint", n, "err", err)
		return
	}
	w.mu.Lock()
	again := w.failed == err.Error()
	w.failed = err.Error()
	w.mu.Unlock()
	if !again {
		w.Log.Error("no checkpoint was written", "checkpoint", n, "err", err)
	}
}

func (w *Writer) name(s *statesync.Snapshot) (n checkpoint.Name, err error) {
	n.Run, err = w.Run(s.Meta())
	n.Generation, n.Step = w.Store.Version(s)
	return n, err
}

// Flush returns when the newest commit is on disk, or cannot be written. At the end of the training
// nothing is written into a directory that is temporary.
func (w *Writer) Flush(end bool) {
	if w == nil || end && w.Temporary {
		return
	}
	w.tasks.Wait()
	s, unpin := w.Store.PinNewest()
	if s == nil {
		return
	}
	defer unpin()
	if n, err := w.name(s); err == nil && n != w.written && w.ctx.Err() == nil {
		w.write()
	}
}

// Wait returns when nothing is being written.
func (w *Writer) Wait() {
	if w != nil {
		w.tasks.Wait()
	}
}
