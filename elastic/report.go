package elastic

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

const (
	// reportEvery paces progress reports; in between the newest replaces the one before.
	reportEvery = 100 * time.Millisecond
	// flushWithin bounds what Run waits at its end for reports that are under way.
	flushWithin = 2 * time.Second
)

// reporter tells the agent of progress in the background, so that no step waits for the agent. Progress may get lost;
// the first step of a generation and the newest commit are repeated until they are through or out of date.
type reporter struct {
	agent *agent
	wake  chan struct{} // capacity 1
	done  chan struct{}
	stop  context.CancelFunc

	mu       sync.Mutex
	progress *wire.Report
	first    *wire.Report
	commit   *wire.CommitReport
	urgent   bool // a first step came in
}

func newReporter(ctx context.Context, a *agent) *reporter {
	ctx, stop := context.WithCancel(ctx)
	r := &reporter{agent: a, wake: make(chan struct{}, 1), done: make(chan struct{}), stop: stop}
	go r.run(ctx)
	return r
}

// tell hands reports over; nil = leave what is there.
func (r *reporter) tell(progress, first *wire.Report, commit *wire.CommitReport) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if progress != nil {
		r.progress = progress
	}
	if first != nil {
		r.first, r.urgent = first, true
	}
	if commit != nil {
		r.commit = commit
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// close sends what is left, for a short while, and ends the reporter.
func (r *reporter) close() {
	if r == nil {
		return
	}
	r.stop()
	<-r.done
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	r.post(ctx)
}

func (r *reporter) run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return
		}
		wait := reportEvery
		if !r.post(ctx) {
			wait = lastRetry
		}
		// A first step must not wait for the pace of the others, and the pause not for the next report.
		t := time.NewTimer(wait)
		for paused := true; paused; {
			select {
			case <-t.C:
				paused = false
			case <-r.wake:
				r.mu.Lock()
				paused = !r.urgent
				r.mu.Unlock()
			case <-ctx.Done():
				t.Stop()
				return
			}
		}
		t.Stop()
		r.again()
	}
}

// again wakes the loop if something came in, or is left, while it paused.
func (r *reporter) again() {
	r.mu.Lock()
	left := r.progress != nil || r.first != nil || r.commit != nil
	r.mu.Unlock()
	if left {
		r.tell(nil, nil, nil)
	}
}

// post sends what there is; false if something could not be sent and should be later.
func (r *reporter) post(ctx context.Context) bool {
	r.mu.Lock()
	progress, first, commit := r.progress, r.first, r.commit
	r.progress, r.first, r.commit, r.urgent = nil, nil, nil, false
	r.mu.Unlock()
	sent := true
	if first != nil {
		if err := r.agent.post(ctx, wire.PathReport, first); err != nil && retryable(err) {
			sent = false
			r.mu.Lock()
			if r.first == nil {
				r.first = first
			}
			r.mu.Unlock()
		}
	}
	if commit != nil {
		if err := r.agent.post(ctx, wire.PathCommit, commit); err != nil && retryable(err) {
			sent = false
			r.mu.Lock()
			if r.commit == nil {
				r.commit = commit
			}
			r.mu.Unlock()
		}
	}
	if progress != nil {
		_ = r.agent.post(ctx, wire.PathReport, progress) // the next one says more
	}
	return sent
}

// finite copies metrics without NaN and infinities, which JSON cannot say.
func finite(metrics map[string]float64) map[string]float64 {
	m := maps.Clone(metrics)
	maps.DeleteFunc(m, func(_ string, v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	return m
}
