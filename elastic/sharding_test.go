package elastic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/elastictest"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/shards"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// shardedJob trains a state of which each rank has rows. A step mixes the sum of all elements into
// each of them, so that a wrong one anywhere changes all.
type shardedJob struct {
	t       *testing.T
	hub     *elastictest.Hub
	kept    shards.Options
	every   int  // steps between commits
	live    bool // parts are copied while the job goes on
	steps   uint64
	onStep  func(name string, s *Session)
	options func(name string, o *Options)
	// onArrange is called when a worker makes its parts.
	onArrange func(name string, s *Session)
	running   sync.WaitGroup

	mu      sync.Mutex
	errs    map[string]error
	results map[string]map[int]int64 // by worker: the elements of its part at the end, by number
	stepped map[uint64]int           // how often rank 0 has made a step

	committed uint64 // the step of the newest commit of those who have ended
}

const shardedRows, shardedColumns = 37, 3

// shardedPart is one worker's part of the tensor in a generation.
type shardedPart struct {
	lo, hi int // rows
	memory []byte
	whole  []byte // of a tensor that all ranks have
	// columns is a part of a tensor with as many columns as the other has rows, which grow by one
	// with each step.
	columns []byte
}

func (p *shardedPart) at(i int) int64 {
	return int64(binary.LittleEndian.Uint64(p.memory[8*(i-p.lo*shardedColumns):]))
}

func (p *shardedPart) set(i int, v int64) {
	binary.LittleEndian.PutUint64(p.memory[8*(i-p.lo*shardedColumns):], uint64(v))
}

func newShardedJob(t *testing.T, workers int, kept shards.Options) *shardedJob {
	return &shardedJob{
		t: t, hub: elastictest.New(t, workers), kept: kept, every: 1, steps: 40,
		errs: map[string]error{}, results: map[string]map[int]int64{}, stepped: map[uint64]int{},
	}
}

func (j *shardedJob) start(name string) {
	state := NewState(nil)
	ctx, transport := j.hub.Start(j.t, name)
	p := &shardedPart{}
	arrange := func(_ context.Context, s *Session) error {
		if j.onArrange != nil {
			j.onArrange(name, s)
		}
		err := p.arrange(s)
		if j.live {
			err = errors.Join(err, s.Live("w", false), s.Live("columns", false))
		}
		return err
	}
	state.SetSharding(Sharding{Arrange: arrange, Copies: j.kept.Copies, Parity: j.kept.Parity})
	j.running.Go(func() {
		o := Options{Job: "j", Socket: j.hub.Socket, Token: name, Transport: transport}
		if j.options != nil {
			j.options(name, &o)
		}
		err := Run(ctx, o, state, func(ctx context.Context, s *Session) error { return j.train(ctx, name, s, p) })
		j.hub.Ended(name, err)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.errs[name], j.committed = err, max(j.committed, state.Committed().Step)
		if err != nil {
			return
		}
		result := map[int]int64{}
		for i := p.lo * shardedColumns; i < p.hi*shardedColumns; i++ {
			result[i] = p.at(i)
		}
		j.results[name] = result
	})
}

// arrange deals the rows like torch.chunk: the last ranks may have fewer, or none.
func (p *shardedPart) arrange(s *Session) error {
	per := (shardedRows + s.World - 1) / s.World
	p.lo = min(s.Rank*per, shardedRows)
	p.hi = min(p.lo+per, shardedRows)
	p.memory, p.whole = make([]byte, 8*(p.hi-p.lo)*shardedColumns), make([]byte, 8)
	p.columns = make([]byte, 2*(p.hi-p.lo))
	if s.Step() == 0 {
		for i := p.lo * shardedColumns; i < p.hi*shardedColumns; i++ {
			p.set(i, int64(i))
		}
		p.whole[0] = byte(s.Rank) // that of rank 0 counts
		for i := range p.columns {
			p.columns[i] = byte(p.lo + i%(p.hi-p.lo))
		}
	}
	return errors.Join(
		s.Shard(Shard{
			Name: "w", Type: "int64", Width: 8, Shape: []int{shardedRows, shardedColumns},
			Offset: []int{p.lo, 0}, Size: []int{p.hi - p.lo, shardedColumns}, Memory: p.memory,
		}),
		s.Shard(Shard{Name: "whole", Type: "int64", Width: 8, Memory: p.whole}),
		s.Shard(Shard{
			Name: "columns", Type: "uint8", Width: 1, Shape: []int{2, shardedRows},
			Offset: []int{0, p.lo}, Size: []int{2, p.hi - p.lo}, Memory: p.columns,
		}),
	)
}

// end is the step after which the training ends.
func (j *shardedJob) end() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.steps
}

// endAfter sets it, on one worker and before any of them is there.
func (j *shardedJob) endAfter(step uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.steps = step
}

// mix is one step of an element.
func mix(v int64, i int, sum int64) int64 { return v*31 + sum + int64(i) }

func (j *shardedJob) train(ctx context.Context, name string, s *Session, p *shardedPart) error {
	for s.Step() < j.end() {
		if j.onStep != nil {
			j.onStep(name, s)
		}
		sum := []int64{0}
		for i := p.lo * shardedColumns; i < p.hi*shardedColumns; i++ {
			sum[0] += p.at(i)
		}
		if err := collective.Allreduce(ctx, s.Comm(), sum, collective.Sum); err != nil {
			return err
		}
		commit := s.Commit
		if j.live {
			commit = s.CommitLive
			s.Changed()
		}
		for i := p.lo * shardedColumns; i < p.hi*shardedColumns; i++ {
			p.set(i, mix(p.at(i), i, sum[0]))
		}
		for i := range p.columns {
			if want := byte(p.lo + i%(p.hi-p.lo) + int(s.Step())); p.columns[i] != want {
				return fmt.Errorf("rank %d at step %d: column %d is %d, want %d", s.Rank, s.Step(), i, p.columns[i], want)
			}
			p.columns[i]++
		}
		if p.whole[0]++; p.whole[0] != byte(s.Step()+1) {
			return fmt.Errorf("rank %d at step %d: what all ranks have is %d", s.Rank, s.Step(), p.whole[0])
		}
		if err := s.Consume(ctx, s.Next(0)); err != nil {
			return err
		}
		if s.Rank == 0 {
			j.mu.Lock()
			j.stepped[s.Step()]++
			j.mu.Unlock()
		}
		if s.CommitDue(j.every) {
			if err := commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish waits for all workers, and compares what they have with what one process computes. It
// returns how many were done.
func (j *shardedJob) finish() int {
	j.t.Helper()
	j.running.Wait()
	for name, err := range j.errs {
		if err != nil && !errors.Is(err, elastictest.ErrKilled) && !errors.Is(err, ErrUnfinished) {
			j.t.Errorf("%s: %v", name, err)
		}
	}
	if len(j.results) == 0 {
		return 0
	}
	want := make([]int64, shardedRows*shardedColumns)
	for i := range want {
		want[i] = int64(i)
	}
	for range j.steps {
		var sum int64
		for _, v := range want {
			sum += v
		}
		for i := range want {
			want[i] = mix(want[i], i, sum)
		}
	}
	found := map[int]bool{}
	for name, result := range j.results {
		for i, v := range result {
			if found[i] = true; v != want[i] {
				j.t.Errorf("%s ends with element %d = %d, want %d", name, i, v, want[i])
			}
		}
	}
	if len(found) != len(want) {
		j.t.Errorf("%d of %d elements are with those who are done: %v", len(found), len(want), j.errs)
	}
	return len(j.results)
}

// awaitChange waits until this worker knows that the members change, or cannot go on.
func awaitChange(t *testing.T, s *Session) {
	eventually(t, func() bool { return s.updates.Pending() != updates.None || s.Comm().Failed() != nil })
}

// TestAShardedStateSurvivesALoss kills one worker at each step in turn, of each world.
func TestAShardedStateSurvivesALoss(t *testing.T) {
	for _, kept := range []shards.Options{{Copies: 1}, {Parity: 2}, {Parity: 4}} {
		for _, world := range []int{2, 3, 5} {
			for victim := range world {
				for _, every := range []int{1, 3} {
					t.Run(fmt.Sprintf("%v, rank %d of %d, a commit each %d steps", kept, victim, world, every), func(t *testing.T) {
						t.Parallel()
						surviveALoss(t, kept, world, victim, every)
					})
				}
			}
		}
	}
}

// TestALossBeforeThereIsAState kills one that makes its first parts: nothing is lost, and the
// others begin with parts of their own.
func TestALossBeforeThereIsAState(t *testing.T) {
	j := newShardedJob(t, 3, shards.Options{Copies: 1})
	j.onArrange = func(name string, s *Session) {
		if s.Generation == 1 && s.Rank == 1 {
			j.hub.Kill(name)
		}
	}
	for i := range 3 {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != 2 {
		t.Errorf("%d are done: %v", done, j.errs)
	}
}

func surviveALoss(t *testing.T, kept shards.Options, world, victim, every int) {
	j := newShardedJob(t, world, kept)
	j.every, j.live = every, victim%2 == 0
	var once sync.Once
	at := uint64(5 + 3*victim + every)
	j.onStep = func(name string, s *Session) {
		if s.Generation == 1 && s.Step() == at && s.Rank == victim {
			once.Do(func() { j.hub.Kill(name) })
		}
		x := s.state.shards
		if commit, survives := x.Whole(); s.Generation == 2 && x.Last() == (statesync.Commit{}) && survives().Members != 0 {
			t.Errorf("%v survives %d losses before copies are made again", commit, survives().Members)
		}
	}
	for i := range world {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != world-1 {
		t.Errorf("%d are done", done)
	}
}

// TestWhatIsBeyondAMultipleGives: of four one is lost, and two train on, to whom the third gives
// what it alone has. When another comes all four train again.
func TestWhatIsBeyondAMultipleGives(t *testing.T) {
	for _, kept := range []shards.Options{{Copies: 1}, {Parity: 3}} {
		for victim := range 4 {
			t.Run(fmt.Sprintf("%v, rank %d", kept, victim), func(t *testing.T) {
				t.Parallel()
				j := newShardedJob(t, 4, kept)
				j.hub.MultipleOf, j.steps = 2, 1<<40
				var once, another, end sync.Once
				j.onStep = func(name string, s *Session) {
					switch {
					case s.World%2 > 0:
						t.Errorf("%d train", s.World)
					case s.Generation == 1 && s.Step() == 6 && s.Rank == victim:
						once.Do(func() { j.hub.Kill(name) })
					case s.Generation == 2 && s.Step() == 20:
						another.Do(func() { j.start("w4") })
						awaitChange(t, s)
					case s.Generation == 3 && s.Rank == 0:
						end.Do(func() { j.endAfter(s.Step() + 10) })
					}
				}
				for i := range 4 {
					j.start(fmt.Sprint("w", i))
				}
				if done := j.finish(); done != 4 {
					t.Errorf("%d are done", done)
				}
			})
		}
	}
}

// TestPlannedChangesRedoNoStep: workers come and go at commits, also most of them at once, and
// where nobody keeps copies.
func TestPlannedChangesRedoNoStep(t *testing.T) {
	for _, kept := range []shards.Options{{}, {Copies: 1}, {Copies: 2}, {Parity: 2}, {Parity: 4}} {
		for _, leavers := range [][]string{{"w2"}, {"w1", "w2"}, {"w2", "w3"}, {"w0", "w1", "w3"}} {
			if kept == (shards.Options{}) && len(leavers) > 2 {
				continue // one copy is made, at the opposite half
			}
			t.Run(fmt.Sprint(kept, leavers), func(t *testing.T) { comeAndGo(t, kept, leavers, false) })
		}
	}
	for _, kept := range []shards.Options{{Copies: 1}, {Parity: 2}} {
		t.Run(fmt.Sprint(kept, " nobody can say who leaves"), func(t *testing.T) { comeAndGo(t, kept, []string{"w2", "w3"}, true) })
	}
}

func comeAndGo(t *testing.T, kept shards.Options, leavers []string, placeless bool) {
	j := newShardedJob(t, 4, kept)
	j.hub.Placeless = placeless
	var leave, enter sync.Once
	j.onStep = func(_ string, s *Session) {
		switch {
		case s.Generation == 1 && s.Step() == 7:
			leave.Do(func() {
				j.hub.Update(func() {
					j.hub.Planned = true
					for _, name := range leavers {
						j.hub.Removed[name] = true
					}
				})
				awaitChange(t, s)
			})
		case s.Generation == 2 && s.Step() == 12:
			enter.Do(func() {
				j.start("late")
				awaitChange(t, s)
			})
		}
	}
	for i := range 4 {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != 5-len(leavers) {
		t.Errorf("%d are done: %v", done, j.errs)
	}
	for _, name := range leavers {
		if !errors.Is(j.errs[name], ErrRemoved) {
			t.Errorf("%s: %v", name, j.errs[name])
		}
	}
	for step := uint64(1); step <= j.steps; step++ {
		if j.stepped[step] != 1 {
			t.Errorf("step %d was made %d times", step, j.stepped[step])
		}
	}
}

// TestALossRightAfterAPlannedChange: the copies of the commit with which the generation has begun
// are on their way, and those of the commit before are there.
func TestALossRightAfterAPlannedChange(t *testing.T) {
	for victim := range 3 {
		t.Run(fmt.Sprint("rank ", victim), func(t *testing.T) {
			t.Parallel()
			j := newShardedJob(t, 3, shards.Options{Copies: 1})
			var another, once sync.Once
			j.onStep = func(name string, s *Session) {
				switch {
				case s.Generation == 1 && s.Step() == 6:
					another.Do(func() { j.start("w3") })
					awaitChange(t, s)
				case s.Generation == 2 && s.Rank == victim:
					once.Do(func() { j.hub.Kill(name) })
				}
			}
			for i := range 3 {
				j.start(fmt.Sprint("w", i))
			}
			if done := j.finish(); done != 3 {
				t.Errorf("%d are done", done)
			}
		})
	}
}

// TestTooManyLossesAreRefused kills two workers at once. One copy is not enough for neighbours, and
// parity not for two of a group: the error says what is lost. Two copies are, and so is parity for
// two of different groups.
func TestTooManyLossesAreRefused(t *testing.T) {
	cases := []struct {
		kept    shards.Options
		world   int
		victims []string
		lost    string // empty = nothing
	}{
		{shards.Options{Copies: 1}, 5, []string{"w1", "w2"}, "columns[0:1, 16:24]"},
		{shards.Options{Copies: 2}, 5, []string{"w1", "w2"}, ""},
		{shards.Options{Parity: 2}, 6, []string{"w1", "w3"}, "columns[0:2, 7:14]"},
		{shards.Options{Parity: 2}, 6, []string{"w1", "w2"}, ""},
		{shards.Options{Parity: 4}, 4, []string{"w0", "w3"}, "columns[0:2, 0:10]"},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%v %s", c.kept, c.lost), func(t *testing.T) {
			j := newShardedJob(t, c.world, c.kept)
			var once sync.Once
			j.onStep = func(_ string, s *Session) {
				if s.Generation == 1 && s.Step() == 9 {
					once.Do(func() { j.hub.Kill(c.victims...) })
				}
			}
			for i := range c.world {
				j.start(fmt.Sprint("w", i))
			}
			if c.lost == "" {
				if done := j.finish(); done != c.world-2 {
					t.Errorf("%d are done: %v", done, j.errs)
				}
				return
			}
			j.running.Wait()
			said := false // one that is late may miss the parts of the others, which have left
			for name, err := range j.errs {
				if slices.Contains(c.victims, name) {
					continue
				}
				if !errors.Is(err, shards.ErrNotWhole) {
					t.Errorf("%s: %v", name, err)
				}
				said = said || strings.Contains(fmt.Sprint(err), "nobody has "+c.lost)
			}
			if !said {
				t.Errorf("nobody says what is lost: %v", j.errs)
			}
		})
	}
}

// TestAShardedStateUnderKillsAndJoins has workers killed and started at random. With patience a
// generation has made a commit before the next change, so that all copies are whole again and
// nothing may be lost. Without it something may, but then that is said.
func TestAShardedStateUnderKillsAndJoins(t *testing.T) {
	for _, patient := range []bool{true, false} {
		for seed := range uint64(20) {
			kept := []shards.Options{{Copies: 1}, {Parity: 2}}[seed%2]
			t.Run(fmt.Sprintf("%t %d %v", patient, seed, kept), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed/2, 1))
				j := newShardedJob(t, 4, kept)
				j.steps, j.every, j.live = 150, 1+random.IntN(3), seed%4 < 2
				newcomers := 1
				if patient && seed%4 > 1 { // with a spare or without, two are enough for two more members
					j.hub.MultipleOf, newcomers = 2, 2
				}
				next, acted := 4, uint64(0)
				began := map[uint64]uint64{} // the step in which a generation began
				var mu sync.Mutex
				j.onStep = func(name string, s *Session) {
					mu.Lock()
					first, known := began[s.Generation]
					if !known {
						first = s.Step()
						began[s.Generation] = first
					}
					after := uint64(0)
					if patient {
						after = uint64(2 * j.every)
					}
					if s.Generation <= acted || s.Step() < first+after+random.Uint64N(3) {
						mu.Unlock()
						return
					}
					acted = s.Generation
					kill := s.World > 2 && (s.World > 5 || random.IntN(2) == 0)
					from := next
					next += newcomers
					mu.Unlock()
					if kill {
						j.hub.Kill(name)
						return
					}
					for i := range newcomers {
						j.start(fmt.Sprint("w", from+i))
					}
					awaitChange(t, s)
				}
				for i := range 4 {
					j.start(fmt.Sprint("w", i))
				}
				j.running.Wait()
				for _, err := range j.errs {
					if !patient && errors.Is(err, shards.ErrNotWhole) {
						return
					}
				}
				j.finish()
				if acted < 4 {
					t.Errorf("nothing happened after generation %d", acted)
				}
			})
		}
	}
}

// TestACommitThatWasWithdrawn: one rank has changed live parts while a commit copied them. When
// another is lost before the next commit all go on from the one before; after it, from that.
func TestACommitThatWasWithdrawn(t *testing.T) {
	const at = 10
	for _, later := range []uint64{0, 1, 2} {
		t.Run(fmt.Sprintf("lost %d commits later", later), func(t *testing.T) {
			t.Parallel()
			j := newShardedJob(t, 4, shards.Options{Copies: 1})
			j.live = true
			withdrawn := make(chan struct{})
			var once, killed sync.Once
			var begins atomic.Uint64
			j.onStep = func(name string, s *Session) {
				switch {
				case s.Generation == 2:
					once.Do(func() { begins.Store(s.Step()) })
				case s.Rank == 1 && s.Step() == at:
					s.Withdraw()
					if err := s.state.Restore(); err == nil {
						t.Error("the state returns to a commit that was withdrawn")
					}
					close(withdrawn)
				case s.Rank == 2 && s.Step() == at+later:
					<-withdrawn
					killed.Do(func() { j.hub.Kill(name) })
				}
			}
			for i := range 4 {
				j.start(fmt.Sprint("w", i))
			}
			if done := j.finish(); done != 3 {
				t.Errorf("%d are done: %v", done, j.errs)
			}
			// Copies of the newest commit may be under way.
			want := [][]uint64{{at - 1}, {at + 1, at - 1}, {at + 2, at + 1}}[later]
			if got := begins.Load(); !slices.Contains(want, got) {
				t.Errorf("step %d was withdrawn, a member lost after step %d, and all go on from step %d, want one of %v", at, at+later, got, want)
			}
		})
	}
}

// TestOneCommitInAStep: a second one with the same name is refused.
func TestOneCommitInAStep(t *testing.T) {
	p := &shardedPart{}
	state := NewState(nil)
	state.SetSharding(Sharding{Arrange: func(_ context.Context, s *Session) error { return p.arrange(s) }, Copies: 1})
	err := Run(context.Background(), Options{}, state, func(ctx context.Context, s *Session) error {
		if err := s.Consume(ctx, s.Next(0)); err != nil {
			return err
		}
		p.set(5, 1)
		if err := s.Commit(ctx); err != nil {
			return err
		}
		p.set(5, 2)
		if err := s.state.Restore(); err != nil || p.at(5) != 1 {
			t.Errorf("restored: %d, %v", p.at(5), err)
		}
		return s.Commit(ctx)
	})
	if err == nil || !strings.Contains(err.Error(), "a sharded state has one commit in a step, and step 1 has one") {
		t.Errorf("%v", err)
	}
}

// TestPartsThatAreRefused: what is wrong with a part is said before anything is sent.
func TestPartsThatAreRefused(t *testing.T) {
	good := Shard{Name: "x", Type: "uint8", Width: 1, Shape: []int{4}, Offset: []int{1}, Size: []int{2}, Memory: make([]byte, 2)}
	cases := []struct {
		change func(p *Shard)
		want   string
	}{
		{func(p *Shard) { p.Width = 0 }, "tensor x: elements of 0 bytes"},
		{func(p *Shard) { p.Offset = []int{3} }, "tensor x: the part [3:5] is not within the shape [4]"},
		{func(p *Shard) { p.Size = nil }, "tensor x: the part"},
		{func(p *Shard) { p.Memory = make([]byte, 3) }, "tensor x: 3 bytes of memory for the part [1:3], which has 2"},
		{func(p *Shard) { p.Type = "int8" }, "tensor x is registered as uint8 [4] and as int8 [4]"},
		{func(p *Shard) { p.Offset, p.Size = []int{2}, []int{2} }, "tensor x: [2:3] is registered twice"},
		{func(p *Shard) { p.Name, p.Shape = "y", []int{9} }, "no rank has registered y[0:1]"},
	}
	for _, c := range cases {
		var err error
		state := NewState(nil)
		state.SetSharding(Sharding{Arrange: func(_ context.Context, s *Session) error {
			if err := s.Shard(good); err != nil {
				return err
			}
			p := good
			p.Name = "x"
			c.change(&p)
			rest := []Shard{
				{Name: "x", Type: "uint8", Width: 1, Shape: []int{4}, Offset: []int{0}, Size: []int{1}, Memory: make([]byte, 1)},
				{Name: "x", Type: "uint8", Width: 1, Shape: []int{4}, Offset: []int{3}, Size: []int{1}, Memory: make([]byte, 1)},
			}
			for _, p := range append([]Shard{p}, rest...) {
				if err := s.Shard(p); err != nil {
					return err
				}
			}
			return nil
		}})
		err = Run(context.Background(), Options{}, state, func(context.Context, *Session) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if err := (&Session{}).Shard(good); err == nil {
		t.Error("a part is registered outside of Arrange")
	}
	nothing := func(context.Context, *Session) error { return nil }
	options := map[string]Sharding{
		"Sharding.Arrange is nil":                             {},
		"Sharding.Copies is -1":                               {Copies: -1, Arrange: nothing},
		"Sharding.Parity is -1":                               {Parity: -1, Arrange: nothing},
		"set Sharding.Copies to 1 instead":                    {Parity: 1, Arrange: nothing},
		"Sharding.Parity is 4 and Sharding.Copies is 1: choo": {Parity: 4, Copies: 1, Arrange: nothing},
	}
	for want, o := range options {
		state := NewState(nil)
		state.SetSharding(o)
		if err := Run(context.Background(), Options{}, state, nothing); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
