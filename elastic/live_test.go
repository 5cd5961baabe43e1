package elastic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/samples"
)

// liveJob trains weights that no commit copies. A step mixes the sum over a batch of samples into
// each of them, so that a step that is missing or made twice changes all.
type liveJob struct {
	t       *testing.T
	hub     *elastictest.Hub
	epochs  uint64
	between bool // there is an operation between a step and its commit
	early   bool // steps agree on their commits before they change weights
	// elsewhere has the weights not in the memory that is registered: they are brought there.
	elsewhere bool
	onLine    func(name string, s *Session, line int)
	running   sync.WaitGroup

	mu      sync.Mutex
	errs    map[string]error
	weights map[string][]int64
	live    int // commits without a copy
	resumed map[uint64]uint64
	made    uint64 // the step of the newest commit that has returned
}

const (
	liveSamples, liveBatch, liveWeights = 97, 8, 1000
	// liveLines is the number of places in a step at which a worker can be killed.
	liveLines = 7
)

func newLiveJob(t *testing.T, workers int) *liveJob {
	return &liveJob{
		t: t, hub: elastictest.New(t, workers), epochs: 3,
		errs: map[string]error{}, weights: map[string][]int64{}, resumed: map[uint64]uint64{},
	}
}

func (j *liveJob) start(name string) {
	state := NewState(samples.NewSampler(liveSamples, 5))
	registered, counter := make([]int64, liveWeights), make([]int64, 1)
	weights := registered
	if j.elsewhere {
		weights = make([]int64, liveWeights)
	}
	Tensor(state, "counter", counter)
	Tensor(state, "weights", registered)
	state.Live("weights")
	ctx, transport := j.hub.Start(j.t, name)
	j.running.Go(func() {
		o := Options{Job: "j", Socket: j.hub.Socket, Token: name, Transport: transport}
		err := Run(ctx, o, state, func(ctx context.Context, s *Session) error {
			copy(weights, registered)
			err := j.train(ctx, name, s, weights, registered, counter)
			if err == nil || s.state.replica.Live() {
				copy(registered, weights)
			}
			return err
		})
		j.hub.Ended(name, err)
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.errs[name] = err; err == nil {
			j.weights[name] = weights
			j.errs[name] = samples.CheckLedger(state.Ledger())
		}
	})
}

func (j *liveJob) train(ctx context.Context, name string, s *Session, weights, registered, counter []int64) error {
	j.mu.Lock()
	j.resumed[s.Generation] = s.Step()
	if made := j.made; s.Step() < made && !j.between {
		j.t.Errorf("generation %d begins with step %d, after the commit of step %d", s.Generation, s.Step(), made)
	}
	j.mu.Unlock()
	line := func(n int) {
		if j.onLine != nil {
			j.onLine(name, s, n)
		}
	}
	for s.Epoch() < j.epochs {
		if counter[0] != int64(s.Step()) {
			return fmt.Errorf("rank %d at step %d: the counter is %d", s.Rank, s.Step(), counter[0])
		}
		counter[0]++ // it is no live tensor, and may change at any time
		line(0)
		b := s.Next(liveBatch)
		sum := []int64{0}
		for _, i := range b.Indices {
			sum[0] += int64(i)
		}
		line(1)
		if err := collective.Allreduce(ctx, s.Comm(), sum, collective.Sum); err != nil {
			return err
		}
		line(2)
		if err := s.Consume(ctx, b); err != nil {
			return err
		}
		if j.early {
			if err := s.AgreeEarly(ctx); err != nil {
				return err
			}
		}
		for i := range weights {
			if i == len(weights)/2 {
				line(3)
			}
			weights[i] = mix(weights[i], i, sum[0])
		}
		line(4)
		if j.between {
			if err := s.Comm().Barrier(ctx); err != nil {
				return err
			}
		}
		line(5)
		if err := j.commit(ctx, s, weights, registered); err != nil {
			return err
		}
		j.mu.Lock()
		j.made = max(j.made, s.Step())
		if s.state.replica.Live() {
			j.live++
		}
		j.mu.Unlock()
		line(6)
	}
	return nil
}

// commit is CommitLive, of weights that may be elsewhere than where they are registered.
func (j *liveJob) commit(ctx context.Context, s *Session, weights, registered []int64) error {
	if !j.elsewhere {
		return s.CommitLive(ctx)
	}
	clear(registered) // nothing may count on what is there
	switch copies, err := s.Agree(ctx, true); {
	case errors.Is(err, ErrPeerLost):
		return errors.Join(err, s.CommitAlone())
	case err != nil:
		return err
	case copies:
		copy(registered, weights)
	}
	return s.CommitLive(ctx)
}

// finish waits for all workers, and compares the weights with those that one process computes.
func (j *liveJob) finish() (done int) {
	j.t.Helper()
	j.running.Wait()
	want, sampler := make([]int64, liveWeights), samples.NewSampler(liveSamples, 5)
	for sampler.Cursor().Epoch < j.epochs {
		b := sampler.Next(liveBatch, 0, 1)
		var sum int64
		for _, i := range b.Indices {
			sum += int64(i)
		}
		for i := range want {
			want[i] = mix(want[i], i, sum)
		}
		sampler.Advance(b)
	}
	for name, weights := range j.weights {
		for i := range want {
			if weights[i] != want[i] {
				j.t.Fatalf("%s ends with weight %d = %d, want %d", name, i, weights[i], want[i])
			}
		}
	}
	for name, err := range j.errs {
		if err != nil && !errors.Is(err, elastictest.ErrKilled) && !errors.Is(err, ErrUnfinished) {
			j.t.Errorf("%s: %v", name, err)
		}
	}
	if j.live == 0 {
		j.t.Error("all commits were copies")
	}
	return len(j.weights)
}

// TestNoStepIsLostOfLiveCommits kills a worker at each line of a step. The survivors go on
// from the step that it was in, or from the one before if the gradients were not complete: nobody
// needs a copy.
func TestNoStepIsLostOfLiveCommits(t *testing.T) {
	for line := range 4 * liveLines {
		for victim := range 3 {
			line, early, elsewhere := line/4, line%2 == 0, line%4 < 2
			t.Run(fmt.Sprintf("rank %d at line %d, early %t, elsewhere %t", victim, line, early, elsewhere), func(t *testing.T) {
				t.Parallel()
				j := newLiveJob(t, 3)
				j.early, j.elsewhere = early, elsewhere
				const at = 17
				var once sync.Once
				j.onLine = func(name string, s *Session, n int) {
					step := s.Step()
					if n > 2 { // Consume has counted it
						step--
					}
					if s.Generation == 1 && step == at && n == line && s.Rank == victim {
						once.Do(func() { j.hub.Kill(name) })
					}
				}
				for i := range 3 {
					j.start(fmt.Sprint("w", i))
				}
				if done := j.finish(); done != 2 {
					t.Errorf("%d are done: %v", done, j.errs)
				}
				if r := j.resumed[2]; r != at && r != at+1 {
					t.Errorf("killed in step %d, and on from step %d", at, r)
				}
			})
		}
	}
}

// TestACommitThatWasAgreedOnWaitsForNobody: rank 1 completes no step before rank 0 has committed
// it.
func TestACommitThatWasAgreedOnWaitsForNobody(t *testing.T) {
	j := newLiveJob(t, 3)
	j.early = true
	committed, alone := make(chan uint64, 1000), 0
	j.onLine = func(_ string, s *Session, n int) {
		switch {
		case s.Rank == 0 && n == 6:
			committed <- s.Step()
		case s.Rank == 1 && n == 4 && s.agreement != nil:
			alone++
			for <-committed < s.Step() {
			}
		}
	}
	for i := range 3 {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != 3 {
		t.Errorf("%d are done: %v", done, j.errs)
	}
	if alone == 0 {
		t.Error("no commit was agreed on early")
	}
}

// TestAnOperationBeforeACommitGoesBackToACopy: when all ranks have changed the weights and none has
// come to the commit, only a copy is left, and the step says so.
func TestAnOperationBeforeACommitGoesBackToACopy(t *testing.T) {
	j := newLiveJob(t, 3)
	j.between = true
	var once sync.Once
	j.onLine = func(name string, s *Session, n int) {
		if s.Generation == 1 && s.Step() == 17 && n == 4 && s.Rank == 1 {
			once.Do(func() { j.hub.Kill(name) })
		}
	}
	for i := range 3 {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != 2 {
		t.Errorf("%d are done: %v", done, j.errs)
	}
	if r := j.resumed[2]; r > 16 {
		t.Errorf("step 17 was lost with all its weights, and the training goes on from step %d", r)
	}
}

// TestLiveCommitsUnderKillsAndJoins has workers killed and started at random lines.
func TestLiveCommitsUnderKillsAndJoins(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			j := newLiveJob(t, 3)
			j.epochs, j.early, j.elsewhere = 8, seed%2 == 0, seed%4 < 2
			var mu sync.Mutex
			next, countdown, kills := 3, 20+random.IntN(40), 0
			j.onLine = func(name string, s *Session, n int) {
				mu.Lock()
				defer mu.Unlock()
				if countdown--; countdown > 0 || s.Epoch() >= j.epochs-1 {
					return
				}
				countdown = 30 + random.IntN(60)
				if kills > 0 && random.IntN(2) == 0 {
					j.start(fmt.Sprint("w", next))
					next++
					return
				}
				if s.World > 1 {
					kills++
					j.hub.Kill(name)
				}
			}
			for i := range 3 {
				j.start(fmt.Sprint("w", i))
			}
			if done := j.finish(); done == 0 {
				t.Errorf("nobody is done: %v", j.errs)
			}
			if kills == 0 {
				t.Error("nobody was killed")
			}
		})
	}
}

// TestWhatTheDeadHaveRecordedCountsOnce: ranks record their samples, one at its own pace, and the
// others record for it when it has died in a commit: before what they have recorded was merged, or
// after.
func TestWhatTheDeadHaveRecordedCountsOnce(t *testing.T) {
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprint(merged), func(t *testing.T) {
			hub := elastictest.New(t, 3)
			var running sync.WaitGroup
			const steps, at = 20, 9
			var mu sync.Mutex
			done := 0
			for rank := range 3 {
				name := fmt.Sprint("w", rank)
				state := NewState(samples.NewSampler(2*steps, 1))
				state.Recording()
				weights := make([]int64, 4)
				Tensor(state, "weights", weights)
				state.Live("weights")
				ctx, transport := hub.Start(t, name)
				running.Go(func() {
					o := Options{Job: "j", Socket: hub.Socket, Token: name, Transport: transport}
					err := Run(ctx, o, state, func(ctx context.Context, s *Session) error {
						for s.Step() < steps {
							if weights[0] != int64(s.Step()) {
								return fmt.Errorf("step %d with weight %d", s.Step(), weights[0])
							}
							if err := s.Comm().Barrier(ctx); err != nil {
								return err
							}
							s.Changed()
							weights[0]++
							step := int(s.Step())
							share := func(r int) []int { return map[int][]int{0: {2 * step}, 1: {2*step + 1}}[r] }
							s.Record(0, share(s.Rank))
							if s.Generation == 1 && step == at && s.Rank == 2 {
								if merged {
									if err := s.mergeRecorded(ctx); err != nil {
										return err
									}
								}
								hub.Kill(name)
							}
							if err := s.CommitLive(ctx); err != nil {
								if errors.Is(err, ErrPeerLost) {
									s.RecordFor(0, share(1-s.Rank)) // of the others rank 2 has no samples
									err = errors.Join(err, s.CommitAlone())
								}
								return err
							}
						}
						return nil
					})
					hub.Ended(name, err)
					if err == nil {
						mu.Lock()
						done++
						mu.Unlock()
						err = samples.CheckLedger(state.Ledger())
					}
					if err != nil && !errors.Is(err, elastictest.ErrKilled) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			running.Wait()
			if done != 2 {
				t.Errorf("%d are done", done)
			}
		})
	}
}
