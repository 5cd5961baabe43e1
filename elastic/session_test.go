package elastic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/inproc"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/samples"
)

// sessions runs f on the ranks of one generation over a data set of ten samples.
func sessions(t *testing.T, world int, f func(ctx context.Context, s *Session) error) []error {
	t.Helper()
	network, errs := inproc.NewNetwork(), make([]error, world)
	endpoints := make([]*collective.Endpoint, world) // all listen before one dials
	for rank := range world {
		l, err := network.Listen(fmt.Sprint(rank))
		if err != nil {
			t.Fatal(err)
		}
		endpoints[rank] = collective.NewEndpoint(l)
	}
	var wait sync.WaitGroup
	for rank, e := range endpoints {
		wait.Go(func() {
			defer func() { _ = e.Close() }()
			c, err := collective.New(t.Context(), collective.Options{
				Job: "j", Generation: 1, Rank: rank, World: world, Endpoint: e,
				Peers: func(_ context.Context, r int) (string, error) { return fmt.Sprint(r), nil },
			})
			if err != nil {
				errs[rank] = err
				return
			}
			s := &Session{updates: updates.New(), Membership: Membership{Generation: 1, Rank: rank, World: world}, comm: c, state: NewState(samples.NewSampler(10, 3))}
			errs[rank] = f(t.Context(), s)
			_ = c.Close()
		})
	}
	wait.Wait()
	return errs
}

func TestEverySampleHasTheSameWeight(t *testing.T) {
	errs := sessions(t, 3, func(ctx context.Context, s *Session) error {
		for _, total := range []int{4, 4, 2} {
			b := s.Next(4)
			if b.Total != total || b.Last != (total == 2) {
				return fmt.Errorf("batch %+v, want %d samples", b, total)
			}
			mean := func(indices []int) float32 { // NaN for none, like a mean over an empty share
				sum := 0.0
				for _, i := range indices {
					sum += float64(i)
				}
				return float32(sum / float64(len(indices)))
			}
			var all []int
			for r := range 3 {
				all = append(all, s.state.sampler.Next(4, r, 3).Indices...)
			}
			grads := []float32{mean(b.Indices), 1}
			if err := s.AverageGradients(ctx, b, grads); err != nil {
				return err
			}
			if math.Abs(float64(grads[0]-mean(all))) > 1e-5 || math.Abs(float64(grads[1]-1)) > 1e-6 {
				return fmt.Errorf("gradients %v, want %v and 1", grads, mean(all))
			}
			if s.Consume(ctx, b) == nil {
				return errors.New("a batch was consumed twice")
			}
		}
		if s.Step() != 3 || s.Epoch() != 1 {
			return fmt.Errorf("step %d, epoch %d", s.Step(), s.Epoch())
		}
		return samples.CheckLedger(s.state.Ledger())
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestNewsOfOneRankReachesAllAtTheSameCommit(t *testing.T) {
	for news, want := range map[int64]error{updates.Planned: ErrPlannedChange, updates.Stop: ErrStopped} {
		for _, steps := range []int{0, 1} { // announced before a step, or before the commit
			errs := sessions(t, 3, func(ctx context.Context, s *Session) error {
				if s.CommitDue(0) {
					return errors.New("a commit is due for no reason")
				}
				if s.Rank == 2 {
					s.updates.Announce(news)
					s.updates.Announce(updates.Planned) // does not take the greater one back
				}
				for range steps {
					if err := s.Consume(ctx, s.Next(3)); err != nil {
						return err
					}
				}
				if steps > 0 && !s.CommitDue(0) {
					return errors.New("the step did not tell of the news")
				}
				err := s.Commit(ctx)
				if got := s.state.Committed().Step; got != uint64(steps) {
					return fmt.Errorf("left with commit %d, want %d", got, steps)
				}
				return err
			})
			for rank, err := range errs {
				if !errors.Is(err, want) {
					t.Errorf("rank %d: %v, want %v", rank, err, want)
				}
			}
		}
	}
}

// TestWhatIsAgreedOnEarly: what ranks say with a commit they can say before the step too, and what
// differs is the same error.
func TestWhatIsAgreedOnEarly(t *testing.T) {
	for name, c := range map[string]struct {
		say  func(s *Session)
		want error
	}{
		"alike":          {func(s *Session) { s.Alike(8) }, nil},
		"unlike":         {func(s *Session) { s.Alike(uint64(s.Rank) << 1) }, ErrUnlike},
		"another commit": {func(s *Session) { s.state.replica.Commit(nil, 1, uint64(s.Rank)) }, samples.ErrDiverged},
		"a planned change": {func(s *Session) {
			if s.Rank == 1 {
				s.updates.Announce(updates.Planned)
			}
		}, ErrPlannedChange},
	} {
		errs := sessions(t, 2, func(ctx context.Context, s *Session) error {
			s.early = true // as after a commit that has copied nothing
			c.say(s)
			if err := s.AgreeEarly(ctx); err != nil {
				if s.agreement != nil {
					return errors.New("there is an agreement")
				}
				return err
			}
			if err := s.comm.Close(); err != nil { // nothing more is said to the others
				return err
			}
			return s.CommitLive(ctx)
		})
		for rank, err := range errs {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: rank %d: %v, want %v", name, rank, err, c.want)
			}
		}
	}
}

func TestCommitsAtDifferentStepsAreRefused(t *testing.T) {
	errs := sessions(t, 2, func(ctx context.Context, s *Session) error {
		s.state.step = uint64(s.Rank)
		return s.Commit(ctx)
	})
	for rank, err := range errs {
		if !errors.Is(err, samples.ErrDiverged) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func TestEndOnOneRankOnlyIsRefused(t *testing.T) {
	errs := sessions(t, 2, func(ctx context.Context, s *Session) error {
		_, err := s.commit(ctx, s.Rank == 0, false)
		return err
	})
	for rank, err := range errs {
		if !errors.Is(err, samples.ErrDiverged) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
