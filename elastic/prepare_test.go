package elastic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/internal/wait"
)

// late is a program that joins first and registers its state later. Before that its ranks agree on
// numbers, one after the other.
type late struct {
	t        *testing.T
	hub      *elastictest.Hub
	agreed   int                                                        // operations before
	before   func(ctx context.Context, name string, s *Session, op int) // each of them; may be nil
	steps    int64
	dir      string // of checkpoints; empty = none
	step     func(name string, s *Session)
	world    int // the training does not end in a smaller one
	mu       sync.Mutex
	stages   map[string][]Stage // in which the program was asked, by worker
	places   map[string][]Membership
	numbers  map[string][]string // what was agreed on
	finished map[string]int64    // the step at which the worker ended
	errs     map[string]error
	wait     sync.WaitGroup
}

func newLate(t *testing.T, n int) *late {
	return &late{
		t: t, hub: elastictest.New(t, n), agreed: 3, steps: 30, stages: map[string][]Stage{}, places: map[string][]Membership{},
		numbers: map[string][]string{}, finished: map[string]int64{}, errs: map[string]error{},
	}
}

func (l *late) start(name string) {
	ctx, transport := l.hub.Start(l.t, name)
	state, at, prologue := NewState(nil), make([]int64, 2), &Prologue{}
	o := Options{
		Job: "late", Socket: l.hub.Socket, Token: name, Transport: transport, Prologue: prologue, ConnectTimeout: buildWithin, PrefetchTimeout: 5 * time.Second,
		Checkpoint: Checkpoint{Dir: l.dir},
		Prepare: func(ctx context.Context, s *Session) error {
			l.mu.Lock()
			l.stages[name], l.places[name] = append(l.stages[name], s.Stage), append(l.places[name], s.Membership)
			l.mu.Unlock()
			if err := l.talk(ctx, name, s, prologue); err != nil {
				return err
			}
			Tensor(state, "at", at)
			return nil
		},
	}
	l.wait.Go(func() {
		err := Run(ctx, o, state, func(ctx context.Context, s *Session) error {
			for at[0] < l.steps {
				if l.step != nil {
					l.step(name, s)
				}
				v := []int64{1}
				if s.World < l.world && at[0] == l.steps-1 {
					v[0] = 0 // it waits for others, and goes on committing
				}
				if err := collective.Allreduce(ctx, s.Comm(), v, collective.Max); err != nil {
					return err
				}
				at[0] += v[0]
				if err := s.Consume(ctx, s.Next(0)); err != nil {
					return err
				}
				if err := s.Commit(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		l.hub.Ended(name, err)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.finished[name], l.errs[name] = at[0], err
	})
}

// talk carries out the operations before the state: what is known is not done again.
func (l *late) talk(ctx context.Context, name string, s *Session, p *Prologue) error {
	var numbers []string
	for op := range l.agreed {
		known, ok := p.At(op)
		if !ok {
			if s.Stage != Preparing {
				return fmt.Errorf("operation %d is not known in stage %v", op, s.Stage)
			}
			if l.before != nil {
				l.before(ctx, name, s, op)
			}
			v := []int64{int64(s.Rank+1) * int64(op+1)}
			if err := collective.Allreduce(ctx, s.Comm(), v, collective.Sum); err != nil {
				return err
			}
			known = fmt.Append(nil, v[0])
			if err := p.Add(known); err != nil {
				return err
			}
		}
		numbers = append(numbers, string(known))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.numbers[name] = numbers
	return nil
}

// end waits for all; those who were not killed have made all steps, and have agreed on the same.
func (l *late) end() {
	l.t.Helper()
	l.wait.Wait()
	var first string
	for name, err := range l.errs {
		if errors.Is(err, elastictest.ErrKilled) {
			continue
		}
		if err != nil || l.finished[name] != l.steps {
			l.t.Errorf("%s ends at step %d of %d: %v", name, l.finished[name], l.steps, err)
		}
		numbers := strings.Join(l.numbers[name], " ")
		if first == "" {
			first = numbers
		}
		if numbers != first {
			l.t.Errorf("%s was told %s before its state, another one %s", name, numbers, first)
		}
	}
}

// TestTheStateIsRegisteredAfterJoining: the ranks talk first.
func TestTheStateIsRegisteredAfterJoining(t *testing.T) {
	l := newLate(t, 3)
	for i := range 3 {
		l.start(fmt.Sprint("w", i))
	}
	l.end()
	if l.hub.Generation != 1 || !slices.Equal(l.numbers["w0"], []string{"6", "12", "18"}) {
		t.Errorf("generation %d, numbers %v", l.hub.Generation, l.numbers)
	}
}

// TestACheckpointOfAStateThatIsRegisteredLate is of that state, and another job goes on from it.
func TestACheckpointOfAStateThatIsRegisteredLate(t *testing.T) {
	dir := t.TempDir()
	for life := range 2 {
		l := newLate(t, 2)
		l.dir = dir
		l.step = func(string, *Session) {
			if life > 0 {
				t.Error("it trains again")
			}
		}
		l.start("w0")
		l.start("w1")
		l.end()
	}
}

// TestALossBeforeTheState: a worker dies between two operations before the state is registered, at
// every one of them. The others go on with what they had agreed on, also if one of them was further
// than the rest.
func TestALossBeforeTheState(t *testing.T) {
	for op := range 3 {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			l := newLate(t, 3)
			var once sync.Once
			l.before = func(ctx context.Context, name string, s *Session, at int) {
				if name == "w1" && at == op {
					once.Do(func() { l.hub.Kill("w1") })
				}
			}
			for i := range 3 {
				l.start(fmt.Sprint("w", i))
			}
			l.end()
			// w0 may have seen no more of the first generation than its end.
			if l.hub.Generation != 2 || slices.Contains(l.stages["w0"], Replaying) {
				t.Errorf("generation %d, stages %v", l.hub.Generation, l.stages)
			}
		})
	}
}

// TestALossWhileSomeAreReady: w0 has registered its state and waits when another dies; who is not
// ready yet is answered from what w0 knows.
func TestALossWhileSomeAreReady(t *testing.T) {
	l := newLate(t, 3)
	l.world = 3
	var once sync.Once
	l.step = func(name string, s *Session) {
		if name == "w2" && s.Generation == 1 { // in sync: the others have their state
			once.Do(func() {
				l.start("late")
				l.hub.Kill("w2")
			})
		}
		wait.Sleep(t.Context(), time.Millisecond)
	}
	for i := range 3 {
		l.start(fmt.Sprint("w", i))
	}
	l.end()
	if n := l.numbers["late"]; !slices.Equal(n, []string{"6", "12", "18"}) {
		t.Errorf("the newcomer was told %v", n)
	}
	if slices.Contains(l.stages["late"], Preparing) {
		t.Errorf("the newcomer was asked in stages %v", l.stages["late"])
	}
}

// TestANewcomerPreparesAside: the others train on while it gets ready, and it receives what they
// had agreed on.
func TestANewcomerPreparesAside(t *testing.T) {
	l := newLate(t, 2)
	l.world = 3
	var once sync.Once
	l.step = func(name string, s *Session) {
		if name == "w0" && s.Step() == 5 {
			once.Do(func() { l.start("late") })
		}
		wait.Sleep(t.Context(), time.Millisecond)
	}
	l.start("w0")
	l.start("w1")
	l.end()
	if !slices.Equal(l.stages["late"], []Stage{Candidate}) || l.hub.Generation != 2 {
		t.Errorf("stages %v, generation %d", l.stages, l.hub.Generation)
	}
	if p := l.places["late"][0]; p.Rank != 2 || p.World != 3 {
		t.Errorf("the newcomer was told to expect %+v", p)
	}
	if len(l.hub.FirstSteps[2]) != 3 {
		t.Errorf("%d members have made a step in generation 2", len(l.hub.FirstSteps[2]))
	}
}

// TestANewcomerIsNeededWhileItPrepares: the members die, and the newcomer, which is not ready, is a
// member of the next generation.
func TestANewcomerIsNeededWhileItPrepares(t *testing.T) {
	l := newLate(t, 1)
	l.steps = 50
	var once sync.Once
	preparing := make(chan struct{})
	l.step = func(name string, s *Session) {
		if name == "w0" && s.Step() == 5 {
			once.Do(func() {
				l.start("late")
				eventually(t, func() bool {
					l.mu.Lock()
					defer l.mu.Unlock()
					return len(l.stages["late"]) > 0
				})
				l.hub.Kill("w0")
			})
		}
	}
	l.start("w0")
	go func() {
		defer close(preparing)
		eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.numbers["late"]) > 0
		})
	}()
	l.end()
	<-preparing
	if !slices.Equal(l.numbers["late"], []string{"1", "2", "3"}) {
		t.Errorf("the newcomer was told %v", l.numbers["late"])
	}
}

// TestTheEndOfTheTrainingIsNotTheEndOfTheRanks: they talk after it.
func TestTheEndOfTheTrainingIsNotTheEndOfTheRanks(t *testing.T) {
	f := newFleet(t, 3)
	var mu sync.Mutex
	var sums []int64
	f.options = func(_ string, o *Options) {
		o.Finish = func(ctx context.Context, s *Session) {
			v := []int64{int64(s.Rank)}
			err := collective.Allreduce(ctx, s.Comm(), v, collective.Sum)
			mu.Lock()
			defer mu.Unlock()
			if sums = append(sums, v[0]); err != nil {
				t.Error(err)
			}
		}
	}
	for i := range 3 {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	if !slices.Equal(sums, []int64{3, 3, 3}) {
		t.Errorf("after the training: %v", sums)
	}
}
