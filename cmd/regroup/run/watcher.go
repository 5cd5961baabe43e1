package run

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// WatchOptions are those of a Watcher.
type WatchOptions struct {
	Client      *cluster.Client
	Job         ident.JobID
	Out, Err    io.Writer // workers' output; everything else
	Palette     screen.Palette
	Terminal    bool                  // Err is one
	OutPalette  screen.Palette        // of the workers' output
	OutTerminal bool                  // Out is one
	OnFact      func(events.Event)    // may be nil
	OnProgress  func(events.Progress) // may be nil
}

// Watcher follows one job.
type Watcher struct {
	o      WatchOptions
	sticky *screen.Sticky
	lines  *screen.Sticky // with the workers' lines that are not finished

	mu       sync.Mutex
	story    *screen.Story
	rate     screen.StepRate
	lastLog  uint64
	lastLine time.Time
	ended    bool
}

// NewWatcher returns a Watcher, which prints the generations of a job, its workers' output and a
// progress line; it does not validate the options.
func NewWatcher(o WatchOptions) *Watcher {
	w := &Watcher{o: o, story: screen.NewStory(o.Palette), sticky: screen.NewSticky(o.Err, o.Terminal, time.Now)}
	w.lines = w.sticky
	if o.OutTerminal && !o.Terminal {
		w.lines = screen.NewSticky(o.Out, true, time.Now)
	}
	if o.OutTerminal {
		w.lines.Fold(o.Out)
	}
	return w
}

// Errors returns a writer to Err for lines that come while the job is followed.
func (w *Watcher) Errors() io.Writer { return w.sticky.Writer(w.o.Err) }

// Run follows the job until a terminal fact and returns its view. Output may still arrive
// afterwards: see Rest.
func (w *Watcher) Run(ctx context.Context) (events.JobView, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	g, inner := errgroup.WithContext(inner)
	g.Go(func() error {
		defer cancel()
		return w.o.Client.Follow(inner, w.o.Job, func(e events.Event) error { return w.fact(inner, e) })
	})
	ignoreJobEnd := func(err error) error {
		if inner.Err() != nil {
			return nil //nolint:nilerr // the end of the job ends the other readers
		}
		return err
	}
	g.Go(func() error { return ignoreJobEnd(w.o.Client.Progress(inner, w.o.Job, w.progress)) })
	g.Go(func() error {
		return ignoreJobEnd(w.o.Client.Logs(inner, w.o.Job, cluster.LogsFrom{Follow: true}, w.line))
	})
	err := g.Wait()
	w.sticky.Clear()
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if ended && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		_ = w.lines.Finish() // the output may have gone
		return events.JobView{}, err
	}
	return w.o.Client.Job(ctx, string(w.o.Job))
}

// Rest prints output that arrives after the end, and the lines that are not finished then. It
// returns when none has arrived for a moment, or ctx ends.
func (w *Watcher) Rest(ctx context.Context, quiet time.Duration) error {
	return errors.Join(w.rest(ctx, quiet), w.lines.Finish())
}

func (w *Watcher) rest(ctx context.Context, quiet time.Duration) error {
	for {
		w.mu.Lock()
		after, last := w.lastLog, w.lastLine
		w.mu.Unlock()
		if err := w.o.Client.Logs(ctx, w.o.Job, cluster.LogsFrom{After: after}, w.line); err != nil {
			return err
		}
		w.mu.Lock()
		same := w.lastLine.Equal(last)
		w.mu.Unlock()
		if same && quiet <= 0 {
			return nil
		}
		if !wait.Sleep(ctx, min(quiet, 50*time.Millisecond)) {
			return nil
		}
		quiet -= 50 * time.Millisecond
	}
}

func (w *Watcher) fact(ctx context.Context, e events.Event) error {
	if w.o.OnFact != nil {
		w.o.OnFact(e)
	}
	body := e.Body
	if b, ok := body.(events.PlacementWaiting); ok { // who is before it in the queue
		if pool, err := w.o.Client.Placement(ctx); err == nil {
			w.mu.Lock()
			b.Reason = view.Queued(events.JobView{Job: w.o.Job, Spec: w.story.Spec()}, b.Reason, pool)
			w.mu.Unlock()
			body = b
		}
	}
	w.mu.Lock()
	line := strings.ReplaceAll(w.story.Line(body), "\n", `\n`)
	w.mu.Unlock()
	if line != "" {
		if err := w.sticky.Above(w.o.Err, line); err != nil {
			return err
		}
	}
	if cluster.Ended(e.Body) {
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
		return cluster.ErrStop
	}
	return nil
}

func (w *Watcher) line(l view.Line) error {
	w.mu.Lock()
	w.lastLog, w.lastLine = max(w.lastLog, l.Sequence), time.Now()
	w.mu.Unlock()
	if w.o.Out == nil {
		return nil
	}
	return w.lines.Line(w.o.Out, w.o.OutTerminal, w.o.OutPalette.Line(l))
}

func (w *Watcher) progress(p events.Progress) error {
	if w.o.OnProgress != nil {
		w.o.OnProgress(p)
	}
	w.mu.Lock()
	w.rate.Take(p, time.Now())
	begin, end := w.story.Summary()
	text := begin + " · " + w.rate.Text() + end
	w.mu.Unlock()
	w.sticky.Set(text)
	return nil
}
