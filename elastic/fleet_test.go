package elastic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/tcp"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
	"github.com/regroup-io/regroup/elastic/statesync"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

const (
	testSamples = 300
	testBatch   = 16
	testEpochs  = 2
	testDim     = 40
	testCommit  = 5
)

// hangs bounds waits far above what is needed.
const (
	hangs       = 30 * time.Second
	buildWithin = 15 * time.Second
)

var (
	errEarly  = errors.New("return nil now")
	errBroken = errors.New("the program is broken")
)

// fleet is a job of workers in goroutines. Their program is exact: its parameters are integers that
// depend on the order of the batches and on nothing else, so any undetected loss, repeat or mixture
// of states changes the result.
type fleet struct {
	t       *testing.T
	hub     *elastictest.Hub
	tcp     bool                                                   // instead of the network
	onStep  func(ctx context.Context, w *worker, s *Session) error // before every step; may be nil
	every   int                                                    // steps between commits
	ballast int                                                    // bytes of additional state
	within  time.Duration                                          // Options.PrefetchTimeout
	other   string                                                 // worker with another program
	wrap    func(name string, t collective.Transport) collective.Transport

	register func(w *worker)               // registers more state; may be nil
	options  func(name string, o *Options) // changes them; may be nil

	mu      sync.Mutex
	workers map[string]*worker
	wait    sync.WaitGroup
}

type worker struct {
	name    string
	state   *State
	weights []int64
	ballast []byte
	seen    counter
	err     error
	calls   []Membership
	rate    *float64
}

type counter struct {
	Steps  int            `json:"steps"`
	Epochs map[string]int `json:"epochs"`
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{t: t, hub: elastictest.New(t, n), workers: map[string]*worker{}, every: testCommit}
	t.Cleanup(func() {
		for _, w := range f.all() {
			f.hub.Kill(w.name)
		}
		f.wait.Wait()
	})
	return f
}

func (f *fleet) all() []*worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ws []*worker
	for _, w := range f.workers {
		ws = append(ws, w)
	}
	return ws
}

func (f *fleet) optionsOf(name string) Options {
	o := Options{Job: "test", Socket: f.hub.Socket, Token: name, AgentTimeout: 10 * time.Second, ConnectTimeout: buildWithin, PrefetchTimeout: f.within}
	if f.options != nil {
		f.options(name, &o)
	}
	return o
}

func newWorker(name string, ballast int) *worker {
	w := &worker{name: name, weights: make([]int64, testDim), ballast: make([]byte, ballast), state: NewState(samples.NewSampler(testSamples, 7))}
	at := samples.HashSum([]int{int(name[0]), 1000 + int(name[len(name)-1])})
	for i := range w.weights {
		w.weights[i] = int64(at + uint64(i)) // every worker would start somewhere else
	}
	for i := 0; i < len(w.ballast); i += 512 {
		w.ballast[i] = byte(at>>(i>>10%8)) | 1
	}
	w.seen.Epochs = map[string]int{}
	Tensor(w.state, "weights", w.weights)
	Tensor(w.state, "ballast", w.ballast)
	w.state.Object("seen", &w.seen)
	return w
}

func (f *fleet) start(name string) *worker {
	w := newWorker(name, f.ballast)
	if name == f.other {
		w.state.Object("other", new(int))
	}
	f.mu.Lock()
	f.workers[name] = w
	f.mu.Unlock()
	ctx, listener := f.hub.Start(f.t, name)
	if f.register != nil {
		f.register(w)
	}
	o := f.optionsOf(name)
	if f.tcp && f.wrap != nil {
		l, err := tcp.Listen(tcp.Options{Host: "127.0.0.1"})
		if err != nil {
			f.t.Error(err)
			return w
		}
		o.Transport = f.wrap(name, l)
	}
	if !f.tcp {
		o.Transport = listener
		if f.wrap != nil {
			o.Transport = f.wrap(name, listener)
		}
	}
	f.wait.Go(func() {
		w.err = Run(ctx, o, w.state, func(ctx context.Context, s *Session) error { return f.train(ctx, w, s) })
		f.hub.Ended(name, w.err)
	})
	return w
}

func (f *fleet) train(ctx context.Context, w *worker, s *Session) error {
	w.calls = append(w.calls, s.Membership)
	for s.Epoch() < testEpochs {
		if f.onStep != nil {
			if err := f.onStep(ctx, w, s); errors.Is(err, errEarly) {
				return nil
			} else if err != nil {
				return err
			}
		}
		b := s.Next(testBatch)
		grads := make([]int64, testDim)
		for _, i := range b.Indices {
			h := workerprotocol.SampleHash(uint64(i))
			grads[h%testDim] += int64(h)
		}
		if err := collective.Allreduce(ctx, s.Comm(), grads, collective.Sum); err != nil {
			return fmt.Errorf("gradients: %w", err)
		}
		for k := range grads {
			w.weights[k] = w.weights[k]*31 + grads[k]
		}
		if len(w.ballast) > 0 {
			w.ballast[w.seen.Steps*4099%len(w.ballast)] ^= byte(w.weights[0])
		}
		w.seen.Steps++
		w.seen.Epochs[fmt.Sprint(b.Epoch)] += b.Total
		if err := s.Consume(ctx, b); err != nil {
			return err
		}
		if s.CommitDue(f.every) {
			if err := s.Commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// kill ends a worker the way SIGKILL does.
func (f *fleet) kill(name string) { f.hub.Kill(name) }

// accused reports whether a join accuses a rank. Concurrent calls are made within hub.Update.
func (f *fleet) accused(rank int) bool {
	return slices.ContainsFunc(f.hub.Joins, func(j workerprotocol.JoinRequest) bool { return slices.Equal(j.Accused, []int{rank}) })
}

// finish waits for all workers.
func (f *fleet) finish() {
	f.t.Helper()
	ended := make(chan struct{})
	go func() {
		f.wait.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		for _, w := range f.all() {
			f.hub.Kill(w.name)
		}
		<-ended
		f.t.Fatal("the fleet hangs")
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hangs); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Error("what the test waits for does not happen")
			return
		}
	}
}

// undisturbed is the result of the same job, alone.
func undisturbed(t *testing.T, start *worker) *worker {
	t.Helper()
	w := newWorker("alone", len(start.ballast))
	copy(w.weights, start.weights)
	copy(w.ballast, start.ballast)
	f := &fleet{t: t, every: testCommit}
	err := Run(context.Background(), Options{}, w.state, func(ctx context.Context, s *Session) error { return f.train(ctx, w, s) })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// check compares every worker that finished with an undisturbed run from the start of one of the
// given workers; it returns how many did.
func (f *fleet) check(starts ...string) int {
	f.t.Helper()
	var wants []*worker
	for _, name := range starts {
		wants = append(wants, undisturbed(f.t, newWorker(name, f.ballast)))
	}
	done := 0
	for _, w := range f.all() {
		if errors.Is(w.err, elastictest.ErrKilled) {
			continue
		}
		if w.err != nil && !errors.Is(w.err, errBroken) && !errors.Is(w.err, statesync.ErrUnreachable) && !errors.Is(w.err, statesync.ErrOtherProgram) && !errors.Is(w.err, ErrUnfinished) {
			f.t.Errorf("%s: %v", w.name, w.err)
		}
		d, ok := f.hub.Done[w.name]
		if w.err == nil != ok && !errors.Is(w.err, ErrOver) { // its done had no answer
			f.t.Errorf("%s returns %v, and has said that it is done: %t", w.name, w.err, ok)
		}
		if !ok {
			continue
		}
		done++
		if !slices.ContainsFunc(wants, func(want *worker) bool {
			return slices.Equal(w.weights, want.weights) && bytes.Equal(w.ballast, want.ballast) && reflect.DeepEqual(w.seen, want.seen)
		}) {
			f.t.Errorf("%s ends with other parameters than an undisturbed run (%+v)", w.name, w.seen)
		}
		if err := samples.CheckLedger(d.Ledger); err != nil {
			f.t.Errorf("%s: %v", w.name, err)
		}
		if n := len(d.Ledger.Epochs); n != testEpochs || !d.Ledger.Epochs[n-1].Done {
			f.t.Errorf("%s: ledger %+v", w.name, d.Ledger)
		}
	}
	return done
}
