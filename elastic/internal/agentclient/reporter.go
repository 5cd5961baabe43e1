package agentclient

import (
	"cmp"
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const (
	// reportInterval is the least time between two reports. A newer report replaces one that was
	// not sent yet.
	reportInterval = 100 * time.Millisecond
	// flushTimeout bounds how long Close waits for reports that are not sent yet.
	flushTimeout = 2 * time.Second
)

// commitReport is a report of a commit that is completed when it is sent.
type commitReport struct {
	workerprotocol.CommitReport
	complete func() // nil = it is complete
}

// Reporter sends reports to the agent in the background, so that no step waits for the agent.
// Progress may be lost; the first step of a generation and the newest commit are sent until they
// arrive or are replaced. The methods of a nil Reporter do nothing.
type Reporter struct {
	client *Client
	wake   chan struct{} // capacity 1
	done   chan struct{}
	stop   context.CancelFunc

	mu       sync.Mutex
	progress *workerprotocol.Report
	first    *workerprotocol.Report
	commit   *commitReport
	urgent   bool // there is a new first step
}

// NewReporter starts a reporter.
func NewReporter(ctx context.Context, c *Client) *Reporter {
	ctx, stop := context.WithCancel(ctx)
	r := &Reporter{client: c, wake: make(chan struct{}, 1), done: make(chan struct{}), stop: stop}
	go r.run(ctx)
	return r
}

// Progress reports progress.
func (r *Reporter) Progress(report *workerprotocol.Report) {
	r.set(func() { r.progress = report })
}

// First reports the first step of a generation.
func (r *Reporter) First(report *workerprotocol.Report) {
	r.set(func() { r.first, r.urgent = report, true })
}

// Commit reports a commit. complete, if it is not nil, computes what the report refers to and the
// program should not wait for. The reporter calls it, unless there is a newer report by then.
func (r *Reporter) Commit(report workerprotocol.CommitReport, complete func()) {
	r.set(func() { r.commit = &commitReport{report, complete} })
}

// Hash reports the hash of the training's state, at once. The job lacks it if that fails.
func (r *Reporter) Hash(ctx context.Context, report *workerprotocol.HashReport) {
	if r != nil {
		_ = r.client.post(ctx, workerprotocol.PathHash, report)
	}
}

func (r *Reporter) set(update func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	update()
	r.mu.Unlock()
	wait.Notify(r.wake)
}

// Close sends what was not sent yet, for a short while, and ends the reporter.
func (r *Reporter) Close() {
	if r == nil {
		return
	}
	r.stop()
	<-r.done
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	r.send(ctx)
}

func (r *Reporter) run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		pause := reportInterval
		if !r.send(ctx) {
			pause = Backoff.Max
		}
		if !r.pause(ctx, pause) {
			return
		}
		r.mu.Lock()
		unsent := r.progress != nil || r.first != nil || r.commit != nil
		r.mu.Unlock()
		if unsent {
			wait.Notify(r.wake)
		}
	}
}

// pause waits for d, or until there is a first step, which must not wait. It returns false if ctx
// ended.
func (r *Reporter) pause(ctx context.Context, d time.Duration) bool {
	expired := time.After(d)
	for {
		select {
		case <-expired:
			return true
		case <-r.wake:
			r.mu.Lock()
			urgent := r.urgent
			r.mu.Unlock()
			if urgent {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// send sends what there is. It returns false if a report must be sent again.
func (r *Reporter) send(ctx context.Context) bool {
	r.mu.Lock()
	progress, first, commit := r.progress, r.first, r.commit
	r.progress, r.first, r.commit, r.urgent = nil, nil, nil, false
	r.mu.Unlock()
	sent := true
	deliver := func(path string, report any, again func()) {
		if err := r.client.post(ctx, path, report); err != nil && retryable(err) {
			sent = false
			r.mu.Lock()
			defer r.mu.Unlock()
			again()
		}
	}
	if first != nil {
		deliver(workerprotocol.PathReport, first, func() { r.first = cmp.Or(r.first, first) })
	}
	if commit != nil {
		if commit.complete != nil {
			commit.complete()
			commit.complete = nil
		}
		deliver(workerprotocol.PathCommit, &commit.CommitReport, func() { r.commit = cmp.Or(r.commit, commit) })
	}
	if progress != nil {
		_ = r.client.post(ctx, workerprotocol.PathReport, progress) // the next one replaces it anyway
	}
	return sent
}

// Finite returns metrics without NaN and infinities, which JSON cannot represent.
func Finite(metrics map[string]float64) map[string]float64 {
	m := maps.Clone(metrics)
	maps.DeleteFunc(m, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return m
}
