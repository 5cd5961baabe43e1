package reproducible

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
)

const (
	weightsOf = 41
	biasOf    = 7
	sizeOf    = weightsOf + biasOf
)

// program is what all workers of a job do.
type program struct {
	samples, global, micro, epochs int
	every                          int  // steps between commits
	live                           bool // commits copy nothing
	witness                        int
	fails                          func(error) bool // the errors that a worker may end with; nil = none
	// gradient changes that of a micro-batch; nil = not.
	gradient func(w *worker, step uint64, m int, indices []int, mean []float32)
	// pace is how many seconds a worker seems to take for a micro-batch; nil = it is not known.
	pace func(w *worker, step uint64) float64
	// at is called by a worker at each moment of a step; nil = not.
	at func(w *worker, s *elastic.Session, where moment)
}

type moment int

const (
	beforeStep moment = iota
	beforeMicro
	afterMicro
	beforeUpdate
	beforeCommit
	moments
)

type worker struct {
	*program
	name              string
	state             *elastic.State
	weights, velocity []float32
	gradients         *Accumulator
	means             [][]float32 // of each step
	norms             []float64
	calls             []call
	updates           []uint64 // the steps that it has completed
	step              uint64   // the last one that it was in
	spent             float64  // seconds on micro-batches
	err               error
}

// call is a micro-batch that a worker has computed.
type call struct {
	step uint64
	m    int
}

func newWorker(p *program, name string) *worker {
	w := &worker{program: p, name: name, weights: make([]float32, sizeOf), velocity: make([]float32, sizeOf)}
	w.state = elastic.NewState(samples.NewSampler(uint64(p.samples), 5))
	for i := range w.weights {
		w.weights[i] = float32(math.Sin(float64(i)))
	}
	elastic.Tensor(w.state, "weights", w.weights)
	elastic.Tensor(w.state, "velocity", w.velocity)
	w.state.Live("weights")
	w.state.Live("velocity")
	w.gradients = New(w.state, "gradients", weightsOf, biasOf, 1)
	w.gradients.clock = func() float64 { return w.spent }
	w.gradients.Witness(p.witness)
	return w
}

func (w *worker) moment(s *elastic.Session, where moment) {
	if w.at != nil {
		w.at(w, s, where)
	}
}

// backward is a gradient in whose sums almost every addition is rounded.
func (w *worker) backward(indices []int, mean []float32) {
	for _, i := range indices {
		for k, v := range w.weights {
			x := math.Sin(float64(i*31+k)) * (1 + float64(v)*float64(v))
			mean[k] += float32(x / float64(len(indices)))
			mean[sizeOf] += float32(x * x / float64(len(indices)))
		}
	}
}

func (w *worker) train(ctx context.Context, s *elastic.Session) error {
	mean := make([]float32, sizeOf+1)
	for s.Epoch() < uint64(w.epochs) {
		w.step = s.Step()
		w.moment(s, beforeStep)
		step, b := s.Step(), s.NextMicro(w.global, w.micro)
		err := w.gradients.Average(ctx, s, b, mean, func(m int, indices []int, mean []float32) error {
			w.moment(s, beforeMicro)
			w.backward(indices, mean)
			if w.gradient != nil {
				w.gradient(w, step, m, indices, mean)
			}
			if err := ctx.Err(); err != nil { // it is dead
				return err
			}
			w.calls = append(w.calls, call{step, m})
			if w.pace != nil {
				w.spent += w.pace(w, step)
			}
			w.moment(s, afterMicro)
			return nil
		})
		if err != nil {
			return err
		}
		w.moment(s, beforeUpdate)
		w.updates = append(w.updates, step)
		w.means = append(w.means[:min(len(w.means), int(step))], slices.Clone(mean))
		if norm := ClipNorm(mean[:sizeOf], 3); math.IsNaN(norm) {
			clear(mean)
		} else {
			w.norms = append(w.norms, norm)
		}
		for k := range w.weights {
			w.velocity[k] = float32(0.9*w.velocity[k]) + mean[k]
			w.weights[k] -= float32(0.05 * w.velocity[k])
		}
		w.moment(s, beforeCommit)
		if s.CommitDue(w.every) {
			commit := s.Commit
			if w.live {
				commit = s.CommitLive
			}
			if err := commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// hash is of all that the training has made.
func (w *worker) hash() string {
	h := sha256.New()
	for _, t := range [][]float32{w.weights, w.velocity, w.gradients.magnitudes} {
		h.Write(bytesOf(t))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// alone trains with one worker.
func alone(t *testing.T, p program) *worker {
	t.Helper()
	p.at = nil
	w := newWorker(&p, "alone")
	if w.err = elastic.Run(t.Context(), elastic.Options{}, w.state, w.train); w.err != nil {
		t.Fatal(w.err)
	}
	return w
}

// fleet is a job of workers in this process.
type fleet struct {
	t       *testing.T
	hub     *elastictest.Hub
	program *program
	dir     string // of checkpoints; empty = none are written

	mu      sync.Mutex
	workers []*worker
	wait    sync.WaitGroup
}

func newFleet(t *testing.T, p *program, n int) *fleet {
	return &fleet{t: t, hub: elastictest.New(t, n), program: p}
}

func (f *fleet) start(name string, late bool) {
	w := newWorker(f.program, name)
	if late { // so that it has what it has from others
		for i := range w.weights {
			w.weights[i], w.velocity[i] = 1e6, 1e6
		}
	}
	f.mu.Lock()
	f.workers = append(f.workers, w)
	f.mu.Unlock()
	ctx, transport := f.hub.Start(f.t, name)
	f.wait.Go(func() {
		o := elastic.Options{
			Job: "test", Socket: f.hub.Socket, Token: name, Transport: transport,
			AgentTimeout: 30 * time.Second, ConnectTimeout: 30 * time.Second, PrefetchTimeout: time.Minute,
			Checkpoint: elastic.Checkpoint{Dir: f.dir},
		}
		w.err = elastic.Run(ctx, o, w.state, w.train)
		f.hub.Ended(name, w.err)
	})
}

// run starts the workers of the first generation, waits for all, and returns those that have
// completed the training.
func (f *fleet) run() (completed []*worker) {
	f.t.Helper()
	for i := range f.hub.Size {
		f.start(fmt.Sprint("w", i), false)
	}
	ended := make(chan struct{})
	go func() {
		f.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		for _, w := range f.workers {
			f.hub.Kill(w.name)
		}
		<-ended
		f.t.Fatal("the fleet hangs")
	}
	for _, w := range f.workers {
		_, done := f.hub.Done[w.name]
		switch {
		case w.err == nil, done: // and then it may have been killed
			completed = append(completed, w)
			if err := samples.CheckLedger(w.state.Ledger()); err != nil {
				f.t.Errorf("%s: %v", w.name, err)
			}
		case f.program.fails != nil && f.program.fails(w.err):
		case !errors.Is(w.err, elastictest.ErrKilled) && !errors.Is(w.err, elastic.ErrUnfinished):
			f.t.Errorf("%s: %v", w.name, w.err)
		}
	}
	return completed
}

// same wants that workers end with the bits of another.
func same(t *testing.T, want *worker, got []*worker) {
	t.Helper()
	if len(got) == 0 {
		t.Error("nobody has completed the training")
	}
	for _, w := range got {
		if w.hash() != want.hash() {
			t.Errorf("%s ends with %s, %s with %s", w.name, w.hash(), want.name, want.hash())
		}
	}
}
