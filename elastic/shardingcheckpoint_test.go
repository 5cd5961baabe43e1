package elastic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/shards"
)

// keepIn has a job write a checkpoint whenever none is being written.
func keepIn(dir string) func(string, *Options) {
	return func(_ string, o *Options) { o.Checkpoint = Checkpoint{Dir: dir, Every: time.Nanosecond, Keep: 2} }
}

// shardedRun is a job of so many workers that is stopped at a step; 0 = it runs to its end, with
// the right result.
func shardedRun(t *testing.T, workers int, stop uint64, options func(string, *Options)) *shardedJob {
	t.Helper()
	j := newShardedJob(t, workers, shards.Options{Copies: 1})
	j.options = options
	var once sync.Once
	if stop > 0 {
		j.onStep = func(_ string, s *Session) {
			if s.Step() == stop {
				once.Do(func() {
					j.hub.Update(func() { j.hub.Stopping = true })
					eventually(t, func() bool { return s.updates.Pending() == updates.Stop })
				})
			}
		}
	}
	for i := range workers {
		j.start(fmt.Sprint("w", i))
	}
	if stop == 0 {
		if done := j.finish(); done != workers {
			t.Errorf("%d of %d are done: %v", done, workers, j.errs)
		}
		return j
	}
	j.running.Wait()
	for name, err := range j.errs {
		if !errors.Is(err, ErrStopped) {
			t.Errorf("%s: %v", name, err)
		}
	}
	return j
}

// began returns the step with which a job went on, and that of the checkpoint that it names; 0 = it
// names none.
func (j *shardedJob) began() (step, from uint64) {
	first := j.hub.FirstSteps[1]["w0"]
	if c := first.First.Checkpoint; c != nil {
		from = c.Step
	}
	return first.Step - 1, from
}

// goOnFor has a job make so many steps, wherever it begins.
func (j *shardedJob) goOnFor(steps uint64) {
	j.steps = 1 << 40
	j.onStep = func(_ string, s *Session) {
		if s.Rank == 0 && j.end() == 1<<40 {
			j.endAfter(s.Step() + steps)
		}
	}
}

// partsIn lists the files with parts, by the folder of their set; those that are whole, or others.
func partsIn(t *testing.T, dir string, whole bool) map[string][]string {
	t.Helper()
	pattern := "*.writing"
	if whole {
		pattern = "*.parts"
	}
	found := map[string][]string{}
	folders, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is valid
	for _, f := range folders {
		found[f], _ = filepath.Glob(filepath.Join(f, "*.safetensors"))
	}
	return found
}

// TestAShardedJobGoesOnFromItsCheckpoint at other world sizes, when it was stopped and when all
// workers have died: to the bit.
func TestAShardedJobGoesOnFromItsCheckpoint(t *testing.T) {
	for _, world := range []int{3, 5, 4} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first := shardedRun(t, 4, 13, keepIn(dir))
			stopped := first.committed
			all := names(t, dir)
			if len(all) != 2 || all[0].Step != stopped || len(partsIn(t, dir, true)) != 2 || len(partsIn(t, dir, false)) != 0 {
				t.Fatalf("there are %v, whole %v, others %v; want two, the newest of step %d", all, partsIn(t, dir, true), partsIn(t, dir, false), stopped)
			}
			for folder, files := range partsIn(t, dir, true) {
				size := int64(0)
				for _, f := range files {
					info, err := os.Stat(f)
					if err != nil {
						t.Fatal(err)
					}
					size += info.Size()
				}
				if once := int64(8*shardedRows*shardedColumns + 8 + 2*shardedRows); len(files) != 4 || size < once || size > once+4*3000 {
					t.Errorf("%s has %d files of %d bytes; the state has %d", folder, len(files), size, once)
				}
			}
			second := newShardedJob(t, world, shards.Options{Copies: 1})
			second.options = keepIn(dir)
			second.steps = 1 << 40
			var known uint64
			var once sync.Once
			second.onStep = func(_ string, s *Session) {
				if whole := partsIn(t, dir, true); s.Step() > stopped+5 && s.Rank == 0 {
					for folder := range whole {
						if name := filepath.Base(folder); strings.HasPrefix(name, "run-000002") {
							once.Do(func() {
								known = names(t, dir)[1].Step
								for i := range world {
									second.hub.Kill(fmt.Sprint("w", i))
								}
							})
						}
					}
				}
			}
			for i := range world {
				second.start(fmt.Sprint("w", i))
			}
			second.running.Wait()
			if step, from := second.began(); step != stopped || from != stopped {
				t.Errorf("the second life begins at step %d, and names %d; want %d", step, from, stopped)
			}
			third := newShardedJob(t, 2, shards.Options{Copies: 1})
			third.options = keepIn(dir)
			third.goOnFor(40)
			third.start("w0")
			third.start("w1")
			if done := third.finish(); done != 2 {
				t.Errorf("%d are done: %v", done, third.errs)
			}
			if step, from := third.began(); step < known || from != step {
				t.Errorf("the third life begins at step %d and names %d; one of step %d was whole", step, from, known)
			}
			if all := names(t, dir); all[0].Step != third.steps || all[0].Run != 3 {
				t.Errorf("at the end there are %v", all)
			}
		})
	}
}

// TestADamagedPartIsRefused, and the checkpoint before it taken, by all.
func TestADamagedPartIsRefused(t *testing.T) {
	for _, what := range []string{"data", "header", "gone", "replicated"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			shardedRun(t, 4, 13, keepIn(dir))
			all := names(t, dir)
			d, err := checkpoint.Open(dir, 2)
			if err != nil {
				t.Fatal(err)
			}
			h, err := d.Describe(all[0])
			if err != nil {
				t.Fatal(err)
			}
			set, _ := h.Set()
			path := filepath.Join(d.PartsPath(set), "rank-00002.safetensors")
			if what == "replicated" {
				path = d.Path(all[0])
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			at := len(b) - 5
			if what == "header" {
				at = bytes.Index(b, []byte("saved_offsets")) + 20
			}
			b[at] ^= 1
			if err = os.WriteFile(path, b, 0o600); what == "gone" {
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			last := shardedRun(t, 3, 0, keepIn(dir))
			if step, from := last.began(); step != all[1].Step || from != step {
				t.Errorf("it begins at step %d and names %d, want %d", step, from, all[1].Step)
			}
			if all := names(t, dir); len(all) != 2 || all[0].Run != 2 {
				t.Errorf("there are %v", all)
			}
			if left := partsIn(t, dir, false); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestTooManyLossesGoBackToACheckpoint: two neighbours of five die, and each part has one copy.
// Those who are left say what is lost and with which checkpoint they go on, and how many steps that
// costs.
func TestTooManyLossesGoBackToACheckpoint(t *testing.T) {
	dir := t.TempDir()
	j := newShardedJob(t, 5, shards.Options{Copies: 1})
	var log syncBuffer
	j.options = func(name string, o *Options) {
		keepIn(dir)(name, o)
		o.Checkpoint.Every = time.Hour
		if name == "w0" {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		}
	}
	var preempted, killed sync.Once
	written := uint64(0)
	j.onStep = func(_ string, s *Session) {
		switch whole := partsIn(t, dir, true); {
		case s.Generation > 1:
		case s.Step() == 5 && s.Rank == 0:
			preempted.Do(func() { // so that this commit is written, and no other one
				j.hub.Update(func() { j.hub.Preempted["w0"] = leavingNow })
				eventually(t, func() bool { return s.updates.Pending() == updates.Preempted })
			})
		case len(whole) > 0 && s.Rank == 0 && s.Step() > 15:
			killed.Do(func() {
				written = names(t, dir)[0].Step
				j.endAfter(s.Step() + 40)
				j.hub.Kill("w1", "w2")
			})
		}
	}
	j.steps = 1 << 40
	for i := range 5 {
		j.start(fmt.Sprint("w", i))
	}
	if done := j.finish(); done != 3 {
		t.Errorf("%d are done: %v", done, j.errs)
	}
	at := j.hub.FirstSteps[2]["w0"]
	if at.First == nil || at.First.Checkpoint == nil || at.First.Checkpoint.Step != written || at.Step != written+1 || at.First.Lost < 16-written {
		t.Errorf("generation 2 begins with %+v %+v, want the step after %d", at, at.First, written)
	}
	for _, want := range []string{"the training goes back to a checkpoint", "nobody has columns[0:1, 16:24]", fmt.Sprintf("checkpoint=l1/g1/%d", written)} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}

// TestEachNodeHasTheDirectoryOfItsRanks: together they have all parts, whichever worker comes back
// where. Without one of them there is an error, and a job whose agent has chosen the directory
// begins anew.
func TestEachNodeHasTheDirectoryOfItsRanks(t *testing.T) {
	dirs := map[string]string{}
	for i := range 4 {
		dirs[fmt.Sprint("w", i)] = t.TempDir()
	}
	ofJob := false
	own := func(name string, o *Options) {
		keepIn(dirs[name])(name, o)
		o.Checkpoint.OfJob = ofJob
	}
	first := shardedRun(t, 4, 13, own)
	stopped := first.committed
	dirs["w0"], dirs["w1"], dirs["w2"], dirs["w3"] = dirs["w3"], dirs["w0"], dirs["w1"], dirs["w2"]
	second := shardedRun(t, 4, stopped+5, own)
	if step, from := second.began(); step != stopped || from != stopped {
		t.Errorf("it begins at step %d and names %d, want %d", step, from, stopped)
	}
	third := newShardedJob(t, 3, shards.Options{Copies: 1})
	third.options = own
	for i := range 3 {
		third.start(fmt.Sprint("w", i))
	}
	third.running.Wait()
	said := false
	for _, err := range third.errs {
		said = said || errors.Is(err, shards.ErrNotWhole) && strings.Contains(err.Error(), "nobody can read columns[0:2, 30:37]")
	}
	if len(third.results) > 0 || !said {
		t.Errorf("without the parts of one: %v", third.errs)
	}
	ofJob = true
	last := newShardedJob(t, 3, shards.Options{Copies: 1})
	last.options = func(name string, o *Options) {
		own(name, o)
		last.hub.Update(func() { last.hub.Space = 1 << 30 })
	}
	for i := range 3 {
		last.start(fmt.Sprint("w", i))
	}
	if done := last.finish(); done != 3 {
		t.Errorf("%d are done: %v", done, last.errs)
	}
	if step, from := last.began(); step != 0 || from != 0 {
		t.Errorf("it begins at step %d and names %d", step, from)
	}
}

// TestOneMemberHasAllParts, and the others get theirs from it.
func TestOneMemberHasAllParts(t *testing.T) {
	dirs := map[string]string{"w0": t.TempDir(), "w1": t.TempDir(), "w2": t.TempDir()}
	first := shardedRun(t, 1, 13, keepIn(dirs["w1"]))
	stopped := first.committed
	last := shardedRun(t, 3, 0, func(name string, o *Options) { keepIn(dirs[name])(name, o) })
	if step, from := last.began(); step != stopped || from != stopped {
		t.Errorf("it begins at step %d and names %d, want %d", step, from, stopped)
	}
}

// TestATensorWithAnotherShape than in the checkpoint is an error that says so.
func TestATensorWithAnotherShape(t *testing.T) {
	dir := t.TempDir()
	train := func(rows int) error {
		state := NewState(nil)
		memory := make([]byte, rows)
		state.SetSharding(Sharding{Arrange: func(_ context.Context, s *Session) error {
			return s.Shard(Shard{Name: "x", Type: "uint8", Width: 1, Shape: []int{rows}, Offset: []int{0}, Size: []int{rows}, Memory: memory})
		}})
		return Run(t.Context(), Options{Checkpoint: Checkpoint{Dir: dir}}, state, func(ctx context.Context, s *Session) error {
			return s.Consume(ctx, s.Next(0))
		})
	}
	if err := train(4); err != nil {
		t.Fatal(err)
	}
	if err := train(6); err == nil || !strings.Contains(err.Error(), "from checkpoint l1/g1/1: tensor x is uint8 [6], and was uint8 [4]") {
		t.Errorf("%v", err)
	}
	if err := train(4); err != nil {
		t.Error(err)
	}
	if all := names(t, dir); len(all) != 2 || all[0].Run != 2 || all[0].Step != 2 {
		t.Errorf("there are %v", all)
	}
}

// TestSpaceIsAskedForAllParts of the ranks of a node, and for what is not sharded where that is
// written. Without space nothing is written, and training goes on.
func TestSpaceIsAskedForAllParts(t *testing.T) {
	for _, space := range []int64{1 << 30, 100} {
		dir := t.TempDir()
		j := newShardedJob(t, 2, shards.Options{Copies: 1})
		j.options = func(name string, o *Options) {
			keepIn(dir)(name, o)
			o.Checkpoint.OfJob = true
			j.hub.Update(func() { j.hub.Space = space })
		}
		if space > 100 {
			j.steps = 1 << 40
			j.onStep = func(_ string, s *Session) {
				if s.Rank == 0 && j.end() == 1<<40 && len(partsIn(t, dir, true)) > 0 {
					j.endAfter(s.Step() + 5)
				}
			}
		}
		j.start("w0")
		j.start("w1")
		if done := j.finish(); done != 2 {
			t.Errorf("%d are done: %v", done, j.errs)
		}
		whole, asked := partsIn(t, dir, true), j.hub.Checkpoints
		if space == 100 {
			if len(whole)+len(partsIn(t, dir, false))+len(names(t, dir)) > 0 || len(asked) == 0 {
				t.Errorf("there are %v after %d requests", whole, len(asked))
			}
			continue
		}
		size := int64(0)
		for _, files := range whole {
			for _, f := range files {
				info, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				size = max(size, info.Size())
			}
		}
		if len(whole) == 0 || size == 0 {
			t.Errorf("nothing is written: %v", whole)
		}
		for _, r := range asked {
			if r.Bytes < size {
				t.Errorf("%d bytes were asked for, and a file has %d", r.Bytes, size)
			}
		}
	}
}

// TestKillsWhileCheckpointsAreWritten: all workers are killed at any moment, again and again, and
// the next ones go on from a checkpoint no older than the newest that was known to be whole.
func TestKillsWhileCheckpointsAreWritten(t *testing.T) {
	random, dir := rand.New(rand.NewPCG(7, 1)), t.TempDir()
	known := uint64(0)
	for range 12 {
		world := 2 + random.IntN(4)
		j := newShardedJob(t, world, shards.Options{Copies: 1})
		j.options, j.steps = keepIn(dir), 1<<40
		moment := known + 2 + random.Uint64N(6)
		var once sync.Once
		victim := fmt.Sprint("w", random.IntN(world))
		j.onStep = func(name string, s *Session) {
			if s.Step() < moment || name != victim {
				return
			}
			once.Do(func() {
				for folder := range partsIn(t, dir, true) {
					var n checkpoint.Name
					if _, err := fmt.Sscanf(filepath.Base(folder), "run-%d.generation-%d.step-%d", &n.Run, &n.Generation, &n.Step); err != nil {
						t.Error(err)
					}
					known = max(known, n.Step)
				}
				for i := range world {
					j.hub.Kill(fmt.Sprint("w", i))
				}
			})
		}
		for i := range world {
			j.start(fmt.Sprint("w", i))
		}
		j.running.Wait()
	}
	last := newShardedJob(t, 3, shards.Options{Copies: 1})
	last.options = keepIn(dir)
	last.goOnFor(50)
	for i := range 3 {
		last.start(fmt.Sprint("w", i))
	}
	if done := last.finish(); done != 3 {
		t.Errorf("%d are done: %v", done, last.errs)
	}
	if step, from := last.began(); step < known || from != step || known == 0 {
		t.Errorf("it begins at step %d and names %d; one of step %d was whole", step, from, known)
	}
	if left := partsIn(t, dir, false); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
