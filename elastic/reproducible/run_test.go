package reproducible

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

// usual has a shorter batch with a shorter micro-batch at the end of its epochs.
var usual = program{samples: 100, global: 24, micro: 4, epochs: 2, every: 1}

// TestBitsDoNotDependOnTheWorld, also where there are more ranks than micro-batches.
func TestBitsDoNotDependOnTheWorld(t *testing.T) {
	want := alone(t, usual)
	for _, n := range []int{2, 3, 4, 7} {
		p := usual
		if got := newFleet(t, &p, n).run(); len(got) != n {
			t.Errorf("%d of %d complete the training", len(got), n)
		} else {
			same(t, want, got)
		}
	}
}

// TestMeansAreThoseOfFloats: the same as samples.Mean and AverageGradients have, but for rounding;
// each sample has the same weight.
func TestMeansAreThoseOfFloats(t *testing.T) {
	p := usual
	p.global = 22 // of which the last micro-batch has two samples
	got := alone(t, p)
	w := newWorker(&p, "floats")
	var mean samples.Mean
	err := elastic.Run(t.Context(), elastic.Options{}, w.state, func(ctx context.Context, s *elastic.Session) error {
		grads := make([]float32, sizeOf+1)
		for s.Epoch() < uint64(p.epochs) {
			step, b := s.Step(), s.NextMicro(p.global, p.micro)
			if err := mean.Of(b, grads, func(indices []int, mean []float32) error {
				clear(mean)
				w.backward(indices, mean)
				return nil
			}); err != nil {
				return err
			}
			if err := s.AverageGradients(ctx, b, grads); err != nil {
				return err
			}
			for k, v := range grads {
				if x := got.means[step][k]; step < 3 && math.Abs(float64(v-x)) > 1e-5*math.Abs(float64(v))+1e-6 {
					t.Errorf("step %d, element %d: %g, with floats %g", step, k, x, v)
				}
			}
			ClipNorm(grads[:sizeOf], 3)
			for k := range w.weights {
				w.velocity[k] = 0.9*w.velocity[k] + grads[k]
				w.weights[k] -= 0.05 * w.velocity[k]
			}
		}
		return nil
	})
	if err != nil || len(got.means) != 10 || w.state.Step() != 10 {
		t.Fatalf("%v, %d and %d steps", err, len(got.means), w.state.Step())
	}
}

// TestHowOftenAMicroBatchIsComputed: micro-batch 0 twice in the first step, all twice when
// gradients have changed too much, else once.
func TestHowOftenAMicroBatchIsComputed(t *testing.T) {
	p := usual
	p.gradient = func(_ *worker, step uint64, m int, _ []int, mean []float32) {
		for k := range mean {
			switch {
			case step == 3 && m == 2: // one micro-batch, in all parts
				mean[k] *= 1e6
			case step == 6 && k == sizeOf: // one part
				mean[k] *= 1e-12
			case step == 4 && k < sizeOf: // within the headroom
				mean[k] *= 10
			}
		}
	}
	want := alone(t, p)
	counts := func(ws []*worker) map[call]int {
		n := map[call]int{}
		for _, w := range ws {
			for _, c := range w.calls {
				n[c]++
			}
		}
		return n
	}
	check := func(n map[call]int) {
		t.Helper()
		for step := range uint64(10) {
			count := 6
			if step == 4 || step == 9 { // the rest of an epoch
				count = 1
			}
			for m := range count {
				times := 1
				// After a growth the next step is smaller again, but within 2^-22 of it.
				if step == 0 && m == 0 || step == 3 || step == 6 || step == 7 {
					times = 2
				}
				if n[call{step, m}] != times {
					t.Errorf("micro-batch %d of step %d was computed %d times, want %d", m, step, n[call{step, m}], times)
				}
			}
		}
	}
	check(counts([]*worker{want}))
	got := newFleet(t, &p, 3).run()
	same(t, want, got)
	check(counts(got))
}

// TestNotFinite: a part with a NaN or an infinity in any micro-batch is NaN on all ranks, and the
// others are what they are. The steps after it are not disturbed.
func TestNotFinite(t *testing.T) {
	p := usual
	p.gradient = func(w *worker, step uint64, m int, _ []int, mean []float32) {
		if slices.ContainsFunc(w.gradients.magnitudes, infinite) {
			t.Errorf("step %d is scaled by %v", step, w.gradients.magnitudes)
		}
		switch {
		case step == 0 && m == 0, step == 5 && m == 3:
			mean[weightsOf+2] = float32(math.NaN())
		case step == 2 && m == 5:
			mean[1], mean[2] = float32(math.Inf(1)), float32(math.Inf(-1))
		}
	}
	want := alone(t, p)
	for step, mean := range want.means {
		for k, v := range mean {
			part, nan := 0, -1
			if k >= weightsOf {
				part = 1
			}
			if k == sizeOf {
				part = 2
			}
			switch step {
			case 0, 5:
				nan = 1
			case 2:
				nan = 0
			}
			if math.IsNaN(float64(v)) != (part == nan) || math.IsInf(float64(v), 0) {
				t.Fatalf("step %d, element %d: %g", step, k, v)
			}
		}
	}
	if len(want.norms) != 7 {
		t.Errorf("%d of ten norms are numbers, want 7", len(want.norms))
	}
	for _, n := range []int{2, 5} {
		same(t, want, newFleet(t, &p, n).run())
	}
}

// TestZeros: parts that are zero, for some time or always.
func TestZeros(t *testing.T) {
	p := usual
	p.gradient = func(_ *worker, step uint64, _ int, _ []int, mean []float32) {
		clear(mean[sizeOf:])
		if step < 4 {
			clear(mean[weightsOf:])
		}
		if step < 2 {
			clear(mean)
		}
	}
	want := alone(t, p)
	for step, mean := range want.means {
		if mean[sizeOf] != 0 || (mean[0] == 0) != (step < 2) || (mean[weightsOf] == 0) != (step < 4) {
			t.Fatalf("step %d: %v", step, mean)
		}
	}
	same(t, want, newFleet(t, &p, 3).run())
}

// TestWhatIsNoFunctionIsFound: a gradient that depends on how often it is computed.
func TestWhatIsNoFunctionIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(calls int, step uint64, mean []float32)
		want   string
	}{
		"a little": {func(calls int, _ uint64, mean []float32) {
			mean[3] += float32(calls)
		}, "computed twice"},
		"more each time": {func(calls int, step uint64, mean []float32) {
			if step > 1 {
				mean[3] *= float32(math.Pow(1e4, float64(calls%8)))
			}
		}, "differ each time"},
	} {
		p, calls := usual, 0
		p.global = p.micro
		p.gradient = func(_ *worker, step uint64, _ int, _ []int, mean []float32) {
			calls++
			c.change(calls, step, mean)
		}
		w := newWorker(&p, "alone")
		err := elastic.Run(t.Context(), elastic.Options{}, w.state, w.train)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMisuse: what is wrong with a call is an error.
func TestMisuse(t *testing.T) {
	p := usual
	for name, c := range map[string]struct {
		batch func(s *elastic.Session) samples.Batch
		grads int
		want  string
	}{
		"the length":            {func(s *elastic.Session) samples.Batch { return s.NextMicro(24, 4) }, sizeOf, "48 elements, the parts 49"},
		"a batch of Next":       {func(s *elastic.Session) samples.Batch { return s.Next(24) }, sizeOf + 1, "not of Session.NextMicro"},
		"a batch of nothing":    {func(s *elastic.Session) samples.Batch { return s.NextMicro(0, 4) }, sizeOf + 1, "no samples"},
		"a batch of one before": {old, sizeOf + 1, "consumed before"},
	} {
		w := newWorker(&p, "alone")
		err := elastic.Run(t.Context(), elastic.Options{}, w.state, func(ctx context.Context, s *elastic.Session) error {
			return w.gradients.Average(ctx, s, c.batch(s), make([]float32, c.grads), func(int, []int, []float32) error { return nil })
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func old(s *elastic.Session) samples.Batch {
	b := s.NextMicro(24, 4)
	if err := s.Consume(context.Background(), b); err != nil {
		panic(err)
	}
	return b
}

// TestErrorsOfTheProgram: they are returned as they are, and Average may be called again.
func TestErrorsOfTheProgram(t *testing.T) {
	want, p, no := alone(t, usual), usual, errors.New("no")
	w := newWorker(&p, "alone")
	err := elastic.Run(t.Context(), elastic.Options{}, w.state, func(ctx context.Context, s *elastic.Session) error {
		b := s.NextMicro(p.global, p.micro)
		err := w.gradients.Average(ctx, s, b, make([]float32, sizeOf+1), func(m int, indices []int, mean []float32) error {
			if m == 3 {
				return no
			}
			w.backward(indices, mean)
			w.calls = append(w.calls, call{0, m})
			return nil
		})
		if !errors.Is(err, no) {
			t.Errorf("error %v", err)
		}
		return w.train(ctx, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, want, []*worker{w})
	if len(w.calls) != len(want.calls) {
		t.Errorf("%d micro-batches were computed, want %d", len(w.calls), len(want.calls))
	}
}

// TestAStepThatIsMadeAgainOnPurpose is computed again.
func TestAStepThatIsMadeAgainOnPurpose(t *testing.T) {
	want, p, again := alone(t, usual), usual, 0
	p.at = func(w *worker, s *elastic.Session, where moment) {
		if where == beforeCommit && s.Step() == 4 && again == 0 {
			again++
			if err := w.state.Restore(); err != nil {
				t.Error(err)
			}
		}
	}
	w := newWorker(&p, "alone")
	if err := elastic.Run(t.Context(), elastic.Options{}, w.state, w.train); err != nil {
		t.Fatal(err)
	}
	same(t, want, []*worker{w})
	if extra := len(w.calls) - len(want.calls); extra != 6 {
		t.Errorf("%d micro-batches were computed again, want 6", extra)
	}
}

// TestRanksThatDoNotDoTheSame: micro-batches of another size on one rank. If the first one to see
// it has left before the other does, that goes on alone.
func TestRanksThatDoNotDoTheSame(t *testing.T) {
	p := usual
	f := newFleet(t, &p, 2)
	other := usual
	other.micro = 6
	f.start("w0", false)
	f.program = &other
	f.start("w1", false)
	f.wait.Wait()
	diverged := 0
	for _, w := range f.workers {
		switch {
		case errors.Is(w.err, collective.ErrDiverged):
			diverged++
		case errors.Is(w.err, elastic.ErrUnfinished):
			t.Errorf("%s: %v", w.name, w.err)
		}
	}
	if diverged == 0 {
		t.Errorf("%v and %v", f.workers[0].err, f.workers[1].err)
	}
}

// TestANewcomerKnowsWhatAPassHasFound: one worker is left with a newcomer, in the second pass over
// a step whose gradients have grown.
func TestANewcomerKnowsWhatAPassHasFound(t *testing.T) {
	p := usual
	p.gradient = func(_ *worker, step uint64, _ int, _ []int, mean []float32) {
		if step == 3 {
			for k := range mean {
				mean[k] *= 1e6
			}
		}
	}
	want, f := alone(t, p), newFleet(t, &p, 2)
	p.at = func(w *worker, s *elastic.Session, where moment) {
		second := w.gradients.dealing.pass == 1 && s.Step() == 3 && s.Generation == 1
		if w.name != "w1" || where != afterMicro || !second {
			return
		}
		f.start("x0", true)
		f.hub.Wait(t.Context(), time.Minute, func() bool { return f.hub.Planned })
		f.hub.Kill("w1")
	}
	got := f.run()
	if len(got) != 2 || f.hub.Generation != 2 {
		t.Fatalf("%d workers complete the training, in %d generations", len(got), f.hub.Generation)
	}
	same(t, want, got)
	for _, w := range got {
		if w.name == "x0" && (w.gradients.session.Generation != 2 || !slices.Equal(w.calls[:min(len(w.calls), 1)], []call{{3, 5}})) {
			t.Errorf("the newcomer has computed %v", w.calls)
		}
	}
}

// TestACheckpointHasTheMagnitudes: a job that was stopped goes on with other workers.
func TestACheckpointHasTheMagnitudes(t *testing.T) {
	want, dir := alone(t, usual), t.TempDir()
	for life, n := range []int{3, 2, 1} {
		p := usual
		p.at = func(w *worker, s *elastic.Session, where moment) {
			if where == beforeStep && int(s.Step()) == 3*(life+1) && life < 2 {
				s.Stop()
			}
		}
		f := newFleet(t, &p, n)
		f.dir = dir
		completed := f.run()
		if life == 2 {
			same(t, want, completed)
			continue
		}
		for _, w := range f.workers {
			if !errors.Is(w.err, elastic.ErrStopped) {
				t.Fatalf("life %d: %s ends with %v", life, w.name, w.err)
			}
		}
	}
}

// TestManyElements are summed up in pieces.
func TestManyElements(t *testing.T) {
	sizes := []int{piece - 3, 7, piece / 2}
	train := func(state *elastic.State, a *Accumulator, weights []float32) func(context.Context, *elastic.Session) error {
		return func(ctx context.Context, s *elastic.Session) error {
			mean := make([]float32, a.elements)
			for s.Epoch() < 2 {
				err := a.Average(ctx, s, s.NextMicro(5, 1), mean, func(m int, indices []int, mean []float32) error {
					for i := range mean {
						mean[i] = (weights[i] + float32(i%1001)) / float32(indices[0]+3)
					}
					return nil
				})
				if err != nil {
					return err
				}
				for i, g := range mean {
					weights[i] -= g / 8
				}
			}
			return nil
		}
	}
	var hashes []uint64
	seed := maphash.MakeSeed()
	for _, n := range []int{1, 3} {
		f, weights := newFleet(t, nil, n), make([][]float32, n)
		for i := range n {
			state := elastic.NewState(samples.NewSampler(5, 1))
			a := New(state, "gradients", sizes...)
			weights[i] = make([]float32, a.elements)
			elastic.Tensor(state, "weights", weights[i])
			name := fmt.Sprint("w", i)
			ctx, transport := f.hub.Start(t, name)
			f.wait.Go(func() {
				err := elastic.Run(ctx, elastic.Options{Job: "test", Socket: f.hub.Socket, Token: name, Transport: transport}, state, train(state, a, weights[i]))
				f.hub.Ended(name, err)
				if err != nil {
					t.Error(err)
				}
			})
		}
		f.wait.Wait()
		for _, w := range weights {
			hashes = append(hashes, maphash.Bytes(seed, bytesOf(w)))
		}
	}
	for _, h := range hashes {
		if h != hashes[0] {
			t.Fatalf("the hashes are %x", hashes)
		}
	}
}

// TestEachIsCountedOnce: what cannot happen is seen if it does.
func TestEachIsCountedOnce(t *testing.T) {
	a := Accumulator{at: point{step: 7}}
	for _, c := range []struct {
		counts []int64
		want   string
	}{{[]int64{1, 1}, ""}, {[]int64{1, 2}, "micro-batch 1 of step 7 was counted 2 times"}, {[]int64{0, 1}, "micro-batch 0 of step 7 was counted 0 times"}} {
		if err := a.once(c.counts); err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.counts, err, c.want)
		}
	}
}
