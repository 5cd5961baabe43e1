package registry

import (
	"context"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/registry/job"
)

// CheckEvery is the interval of a replica's checks for stalled jobs. A gap of several intervals
// means that the replica was paused.
const CheckEvery = 200 * time.Millisecond

// NewStepTracker returns the tracker of a replica that has received nothing yet.
func NewStepTracker() job.StepTracker { return job.StepTracker{Gap: 5 * CheckEvery} }

// listener receives the steps of all jobs. They are kept in memory: no step waits for a write.
type listener struct {
	ports broker.Ports

	mu      sync.Mutex
	tracker job.StepTracker
}

// records takes the registry's own documents, which show the jobs to be tracked.
func (l *listener) records(controller.Emit) (changed func(string, []byte), listed, ended func()) {
	return func(key string, value []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if value == nil {
			l.tracker.Forget(ident.JobID(key))
			return
		}
		// Replicas of a newer version handle the documents that this one cannot decode.
		if v, err := document.View[stepped](value); err == nil {
			l.tracker.Update(v.job(), time.Now())
		}
	}, nil, nil
}

// stepped is the part of a job's view that the tracker needs, without its thousands of workers.
type stepped struct {
	Job             ident.JobID              `json:"job"`
	State           events.JobState          `json:"state"`
	Generation      ident.Generation         `json:"generation"`
	Step            uint64                   `json:"step"`
	StepAt          time.Time                `json:"step_at"`
	TimeWithoutStep spec.Duration            `json:"time_without_step"`
	Reported        map[string]events.Metric `json:"reported"`
	Redundancy      *events.Redundancy       `json:"redundancy"`
	Spec            struct {
		Health spec.Health `json:"health"`
	} `json:"spec"`
}

func (s stepped) job() events.JobView {
	return events.JobView{Job: s.Job, State: s.State, Generation: s.Generation, Step: s.Step, StepAt: s.StepAt, TimeWithoutStep: s.TimeWithoutStep, Reported: s.Reported, Redundancy: s.Redundancy, Spec: spec.Job{Health: s.Spec.Health}}
}

func (l *listener) steps(ctx context.Context, _ controller.Emit) error {
	return l.ports.Signals.Hear(ctx, events.AllProgress, "", func(_ string, data []byte) {
		p, err := bodies.Decode[events.Progress](data)
		if err != nil {
			return // a signal may be lost
		}
		p.Ledger = nil // not needed for ages, and large
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tracker.Observe(p, time.Now())
	}, nil)
}

// answer answers queries of jobs' progress from memory. Every replica receives all signals.
func (l *listener) answer(ctx context.Context, _ controller.Emit) error {
	return l.ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceRegistry, events.VerbProgress), events.ServiceRegistry, func(_ context.Context, data []byte) ([]byte, error) {
		q, err := bodies.Decode[events.ProgressQuery](data)
		if err != nil {
			return nil, err
		}
		a := events.ProgressAnswer{Jobs: make(map[ident.JobID]events.JobProgress, len(q.Jobs))}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range q.Jobs {
			if h, ok := l.tracker.Progress(id); ok {
				a.Jobs[id] = h
			}
		}
		return bodies.Encode(a)
	})
}

// observe returns what this replica has heard of a job since its record was written.
func (l *listener) observe(entity string, _ func() []string, _ func(string) (job.State, bool)) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, _ := l.tracker.Progress(ident.JobID(entity))
	return p
}

// connection stops timeouts while this replica is disconnected.
func (l *listener) connection(ctx context.Context, _ controller.Emit) error {
	return l.ports.Signals.Watch(ctx, func(connected bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tracker.Connected(connected, time.Now())
	})
}

// look reports stalled jobs and offers newer steps to the record.
func (l *listener) look(ctx context.Context, emit controller.Emit) error {
	return wait.Every(ctx, CheckEvery, func(time.Time) error {
		l.mu.Lock()
		still, unstored := l.tracker.Check(time.Now())
		l.mu.Unlock()
		for _, p := range unstored {
			emit(events.Input{Body: p})
		}
		for _, s := range still {
			emit(events.Input{Body: s})
		}
		return nil
	})
}
