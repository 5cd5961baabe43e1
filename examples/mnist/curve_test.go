package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
)

// fleet is a job of mnist workers in one process.
type fleet struct {
	t           *testing.T
	hub         *elastictest.Hub
	train, test digits
	config      config
	onStep      func(name string, s *elastic.Session)            // may be nil
	onMicro     func(name string, s *elastic.Session, micro int) // likewise

	mu      sync.Mutex
	losses  bytes.Buffer // of rank 0 of each generation, in order
	results []results    // of the workers that were not killed
	hashes  []string     // likewise
	wait    sync.WaitGroup
}

// Write collects the losses of the current rank 0.
func (f *fleet) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.losses.Write(b)
}

func (f *fleet) start(name string) {
	tr := newTrainer(f.config, f.train, f.test, io.Discard)
	tr.losses = f
	if f.onStep != nil {
		tr.beforeStep = func(s *elastic.Session) { f.onStep(name, s) }
	}
	if f.onMicro != nil {
		tr.afterMicro = func(s *elastic.Session, m int) { f.onMicro(name, s, m) }
	}
	ctx, transport := f.hub.Start(f.t, name)
	f.wait.Go(func() {
		o := elastic.Options{Job: "mnist", Socket: f.hub.Socket, Token: name, Transport: transport}
		err := elastic.Run(ctx, o, tr.state, tr.train)
		f.hub.Ended(name, err)
		if errors.Is(err, elastictest.ErrKilled) {
			return
		}
		if err := errors.Join(err, samples.CheckLedger(tr.state.Ledger())); err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.results, f.hashes = append(f.results, tr.results), append(f.hashes, tr.hash())
	})
}

// curve runs a job of n workers and returns its loss by step; repeated steps must have the same
// loss.
func curve(t *testing.T, train, test digits, n int, prepare func(f *fleet)) ([]float64, results) {
	t.Helper()
	f := &fleet{t: t, hub: elastictest.New(t, n), train: train, test: test}
	f.config = config{epochs: 2, batch: 64, micro: 16, commitEvery: 7, rate: 0.05, seed: 1}
	if prepare != nil {
		prepare(f)
	}
	for i := range n {
		f.start(fmt.Sprint("w", i))
	}
	f.wait.Wait()
	losses := make([]float64, 2*141+1)
	for lines := bufio.NewScanner(&f.losses); lines.Scan(); {
		var step int
		var loss float64
		if _, err := fmt.Sscan(lines.Text(), &step, &loss); err != nil {
			t.Fatal(err)
		}
		if was := losses[step]; was != 0 && far(was, loss) && step <= 100 {
			t.Errorf("step %d had loss %v, and %v when it was made again", step, was, loss)
		}
		losses[step] = loss
	}
	if len(f.results) == 0 {
		t.Fatal("nobody came to the end")
	}
	for _, r := range f.results {
		if r != f.results[0] {
			t.Errorf("workers end with %+v and %+v", f.results[0], r)
		}
	}
	return losses, f.results[0]
}

func far(a, b float64) bool { return math.Abs(a-b) > 1e-5*math.Abs(a) }

// TestTheLossIsThatOfOneWorker compares worlds of two to four, and one that loses two workers and
// gets two others, with one worker: the global batch is the same, so the first hundred steps agree
// to 10⁻⁵, and the final accuracy to half a point.
func TestTheLossIsThatOfOneWorker(t *testing.T) {
	train, test := data(t)
	want, end := curve(t, train, test, 1, nil)
	if end.Accuracy < 0.85 {
		t.Fatalf("one worker learns to read %.3f of the digits", end.Accuracy)
	}
	var once [4]sync.Once
	disturbed := func(f *fleet) {
		f.onStep = func(name string, s *elastic.Session) {
			switch g := s.Generation; {
			case g == 1 && s.Step() == 17 && name == "w1":
				once[0].Do(func() { f.hub.Kill("w1") })
			case g == 2 && s.Step() >= 31 && name == "w0":
				once[1].Do(func() { f.start("late1") })
			case g == 3 && s.Step() >= 60 && name == "w0": // rank 0
				once[2].Do(func() { f.hub.Kill("w0") })
			case g == 4 && s.Step() >= 70 && name == "w2":
				once[3].Do(func() { f.start("late2") })
			}
			if s.Step() > 80 && s.Generation < 5 { // new workers should join before the end
				f.hub.Wait(f.t.Context(), 50*time.Millisecond, func() bool { return f.hub.Planned || f.hub.Generation > s.Generation })
			}
		}
	}
	for _, c := range []struct {
		name    string
		world   int
		prepare func(*fleet)
	}{{"two", 2, nil}, {"three", 3, nil}, {"four", 4, nil}, {"three, with kills and joins", 3, disturbed}} {
		t.Run(c.name, func(t *testing.T) {
			worst, generations := 0.0, uint64(1)
			got, results := curve(t, train, test, c.world, func(f *fleet) {
				if c.prepare != nil {
					c.prepare(f)
				}
				f.hub.OnSeal = func(g uint64, _ []string) { generations = g }
			})
			for step := 1; step <= 100; step++ {
				worst = max(worst, math.Abs(got[step]-want[step])/want[step])
				if far(want[step], got[step]) {
					t.Errorf("step %d: loss %v, want %v", step, got[step], want[step])
				}
			}
			if d := math.Abs(results.Accuracy - end.Accuracy); d > 0.005 {
				t.Errorf("accuracy %v, want %v", results.Accuracy, end.Accuracy)
			}
			if c.prepare != nil && generations < 5 {
				t.Errorf("there were %d generations, want one after each kill and join", generations)
			}
			t.Logf("largest difference %.1e, accuracy %v and %v, %d generations", worst, results.Accuracy, end.Accuracy, generations)
		})
	}
}
