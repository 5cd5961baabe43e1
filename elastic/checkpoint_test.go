package elastic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/elastic/checkpoint"
	"github.com/regroup-io/regroup/elastic/internal/checkpointwriter"
	"github.com/regroup-io/regroup/elastic/internal/updates"
	"github.com/regroup-io/regroup/elastic/statesync"
)

// job runs a fleet of n with checkpoints in dir and stops it at a step; 0 = it runs to its end.
func job(t *testing.T, dir string, n int, stop uint64, change func(f *fleet)) *fleet {
	t.Helper()
	f := newFleet(t, n)
	f.ballast = 3*statesync.ChunkBytes + 100
	f.options = func(_ string, o *Options) { o.Checkpoint = Checkpoint{Dir: dir, Every: time.Nanosecond, Keep: 2} }
	f.onStep = func(_ context.Context, w *worker, s *Session) error {
		if s.Step() == stop && stop > 0 && w.name == "w0" {
			f.hub.Update(func() { f.hub.Stopping = true })
			eventually(t, func() bool { return s.updates.Pending() == updates.Stop })
		}
		return nil
	}
	if change != nil {
		change(f)
	}
	for i := range n {
		f.start(fmt.Sprint("w", i))
	}
	f.finish()
	for _, w := range f.all() {
		if (w.err != nil || stop > 0) && !errors.Is(w.err, ErrStopped) {
			t.Errorf("%s: %v", w.name, w.err)
		}
	}
	return f
}

func names(t *testing.T, dir string) []checkpoint.Name {
	t.Helper()
	f, err := checkpoint.Open(dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAJobGoesOnFromItsCheckpointAtAnotherWorldSize: it is stopped twice and ends as an undisturbed
// one does; the report of the first step says where it began.
func TestAJobGoesOnFromItsCheckpointAtAnotherWorldSize(t *testing.T) {
	dir := t.TempDir()
	first := job(t, dir, 3, 13, nil)
	stopped := first.workers["w0"].state.Committed().Step
	if got := names(t, dir)[0]; got != (checkpoint.Name{Run: 1, Generation: 1, Step: stopped}) {
		t.Fatalf("the newest checkpoint is %v, want that of the last commit, %d", got, stopped)
	}
	if first.hub.FirstSteps[1]["w0"].First.Checkpoint != nil {
		t.Error("the first life says that it began with a checkpoint")
	}
	second := job(t, dir, 1, 25, nil)
	if at := second.hub.FirstSteps[1]["w0"]; at.Step != stopped+1 || at.First.Checkpoint == nil || at.First.Checkpoint.Step != stopped {
		t.Errorf("the second life reports %+v %+v, want a first step after %d", at, at.First, stopped)
	}
	last := job(t, dir, 4, 0, nil)
	if done := last.check("w0"); done != 4 {
		t.Errorf("%d workers are done, want 4", done)
	}
	if all := names(t, dir); len(all) != 2 || all[0].Run != 3 {
		t.Errorf("there are %v, want two with the third life's first", all)
	}
}

// TestADamagedCheckpointIsLeftAside, and the one before it taken, by all.
func TestADamagedCheckpointIsLeftAside(t *testing.T) {
	dir := t.TempDir()
	job(t, dir, 2, 13, nil)
	all := names(t, dir)
	f, err := checkpoint.Open(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Path(all[0]))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(f.Path(all[0]), b, 0o600); err != nil {
		t.Fatal(err)
	}
	last := job(t, dir, 3, 0, nil)
	if done := last.check("w0"); done != 3 {
		t.Errorf("%d workers are done, want 3", done)
	}
	if at := last.hub.FirstSteps[1]["w1"]; at.Step != all[1].Step+1 {
		t.Errorf("it began with step %d, want the one after %v", at.Step, all[1])
	}
}

// TestWhoeverHasTheNewestCheckpointBringsIt: each worker has a folder of its own, like the disk of
// its node.
func TestWhoeverHasTheNewestCheckpointBringsIt(t *testing.T) {
	dirs := map[string]string{"w0": t.TempDir(), "w1": t.TempDir(), "w2": t.TempDir()}
	own := func(f *fleet) {
		f.options = func(name string, o *Options) { o.Checkpoint = Checkpoint{Dir: dirs[name], Every: time.Nanosecond} }
	}
	job(t, t.TempDir(), 3, 8, own)
	newest := names(t, dirs["w0"])[0]
	if len(names(t, dirs["w1"])) > 0 {
		t.Fatal("rank 1 has written a checkpoint")
	}
	// On the next job's node w2 is what was on w0's.
	dirs["w0"], dirs["w2"] = dirs["w1"], dirs["w0"]
	last := job(t, "", 3, 0, own)
	if done := last.check("w0"); done != 3 || last.hub.FirstSteps[1]["w0"].Step != newest.Step+1 {
		t.Errorf("%d workers are done; rank 0 began with step %d, want the one after %v", done, last.hub.FirstSteps[1]["w0"].Step, newest)
	}
}

// TestAnotherProgramsCheckpointStopsTheJob: it must not begin anew in that folder, and remove what
// is there in time.
func TestAnotherProgramsCheckpointStopsTheJob(t *testing.T) {
	dir := t.TempDir()
	job(t, dir, 1, 8, nil)
	before := names(t, dir)
	s := NewState(nil)
	Tensor(s, "another", make([]float32, 5))
	err := Run(t.Context(), Options{Checkpoint: Checkpoint{Dir: dir}}, s, func(context.Context, *Session) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "another program") || !strings.Contains(err.Error(), "weights(int64") {
		t.Errorf("error %v", err)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("%v became %v", before, after)
	}
}

// heldDisk writes when it is let, and says when it is asked to.
type heldDisk struct {
	*checkpoint.Dir

	asked chan checkpoint.Name
	let   chan struct{}
}

func (d *heldDisk) Write(ctx context.Context, i checkpoint.Image) error {
	d.asked <- i.Name
	<-d.let
	return d.Dir.Write(ctx, i)
}

// TestTrainingDoesNotWaitForTheDisk: while a checkpoint is being written others that are due are
// left out, and what is written is one commit whatever training does meanwhile.
func TestTrainingDoesNotWaitForTheDisk(t *testing.T) {
	s, dir := NewState(nil), t.TempDir()
	tensor := make([]byte, 5*statesync.ChunkBytes)
	Tensor(s, "tensor", tensor)
	folder, err := checkpoint.Open(dir, 100)
	if err != nil {
		t.Fatal(err)
	}
	held := &heldDisk{folder, make(chan checkpoint.Name, 100), make(chan struct{}, 1)}
	w := checkpointwriter.New(t.Context(), checkpointwriter.Options{
		Dir: held, Every: time.Nanosecond, Store: s.replica.Store(), Run: runOf, Log: slog.New(slog.DiscardHandler),
	})
	w.Describe(s.layout().String(), s.replica.Tensors.All())
	commit := func() {
		s.step++
		for i := range tensor {
			tensor[i] = byte(s.step)
		}
		if err := s.save(1, true); err != nil {
			t.Fatal(err)
		}
		w.Committed(false)
	}
	var want []checkpoint.Name
	asked := func() {
		t.Helper()
		select {
		case n := <-held.asked:
			want = append(want, n)
		case <-time.After(time.Minute):
			t.Fatalf("nothing is written after step %d", s.step)
		}
	}
	for range 5 {
		commit()
		asked()
		for range 3 {
			commit()
		}
		held.let <- struct{}{}
		w.Wait()
	}
	close(held.let)
	w.Flush(true)
	asked()
	for i, step := range []uint64{1, 5, 9, 13, 17, 20} {
		if want[i].Step != step {
			t.Errorf("write %d is of step %d, want %d", i, want[i].Step, step)
		}
	}
	all := names(t, dir)
	slices.Reverse(all)
	if !slices.Equal(all, want) || len(held.asked) > 0 {
		t.Errorf("on the disk are %v, want %v", all, want)
	}
	for _, n := range all {
		if _, err := folder.Read(n, s.layout().String(), tensor); err != nil {
			t.Error(err)
		}
		if i := slices.IndexFunc(tensor, func(b byte) bool { return b != byte(n.Step) }); i >= 0 {
			t.Errorf("%v: byte %d is of another commit", n, i)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.unfinished")); len(files) > 0 {
		t.Errorf("%v is left", files)
	}
}

// TestNoticeOfPreemptionWritesACheckpoint though none is due.
func TestNoticeOfPreemptionWritesACheckpoint(t *testing.T) {
	dir := t.TempDir()
	job(t, dir, 2, 0, func(f *fleet) {
		f.every = 1000
		f.options = func(_ string, o *Options) { o.Checkpoint = Checkpoint{Dir: dir, Every: time.Hour, Keep: 10} }
		f.onStep = func(_ context.Context, w *worker, s *Session) error {
			switch {
			case s.Step() == 5 && w.name == "w1":
				f.hub.Update(func() { f.hub.Preempted["w1"] = leavingNow })
				eventually(t, func() bool { return s.updates.Pending() == updates.Preempted })
			case s.Step() == 8:
				eventually(t, func() bool { return len(names(t, dir)) == 1 })
			}
			return nil
		}
	})
	if all := names(t, dir); len(all) != 2 || all[1].Step != 6 {
		t.Errorf("there are %v, want one of step 6 and that of the end", all)
	}
}

// ofJob makes a folder that of the job in which the agent keeps checkpoints.
func ofJob(dir string, space int64) func(f *fleet) {
	return func(f *fleet) {
		f.hub.Space = space
		f.options = func(_ string, o *Options) {
			o.Checkpoint = Checkpoint{Dir: dir, Every: time.Nanosecond, OfJob: true}
		}
	}
}

// TestTheFolderOfTheJob: its space is asked for, one checkpoint is kept, a job that has lost all of
// its workers goes on from it, and nothing is written at its end.
func TestTheFolderOfTheJob(t *testing.T) {
	dir := t.TempDir()
	first := job(t, dir, 2, 13, ofJob(dir, 1<<30))
	stopped := first.workers["w0"].state.Committed().Step
	all := names(t, dir)
	if len(all) != 1 || all[0].Step != stopped {
		t.Fatalf("there are %v, want one of step %d", all, stopped)
	}
	info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("run-000001.generation-0000000001.step-%014d.checkpoint", stopped)))
	if err != nil {
		t.Fatal(err)
	}
	if asked := first.hub.Checkpoints[0].Bytes; asked < info.Size() || asked > info.Size()+2048 {
		t.Errorf("%d bytes were asked for, the file has %d", asked, info.Size())
	}
	last := job(t, dir, 3, 0, func(f *fleet) {
		ofJob(dir, 1<<30)(f)
		old := f.options
		f.options = func(name string, o *Options) {
			old(name, o)
			o.Checkpoint.Every = time.Hour
		}
	})
	if at := last.hub.FirstSteps[1]["w0"]; at.Step != stopped+1 {
		t.Errorf("it goes on with step %d, want the one after %d", at.Step, stopped)
	}
	if done := last.check("w0"); done != 3 {
		t.Errorf("%d workers are done, want 3", done)
	}
	if again := names(t, dir); !slices.Equal(again, all) || len(last.hub.Checkpoints) > 0 {
		t.Errorf("at the end there are %v after %d requests, want %v", again, len(last.hub.Checkpoints), all)
	}
}

// TestWithoutSpaceNothingIsWritten, and training goes on.
func TestWithoutSpaceNothingIsWritten(t *testing.T) {
	dir := t.TempDir()
	f := job(t, dir, 2, 0, ofJob(dir, 100))
	if done := f.check("w0"); done != 2 {
		t.Errorf("%d workers are done, want 2", done)
	}
	if all := names(t, dir); len(all) > 0 || len(f.hub.Checkpoints) == 0 {
		t.Errorf("there are %v after %d requests", all, len(f.hub.Checkpoints))
	}
}

// TestAnotherProgramsCheckpointInTheFolderOfTheJob is passed over, because the user has not chosen
// it: the job begins anew.
func TestAnotherProgramsCheckpointInTheFolderOfTheJob(t *testing.T) {
	dir := t.TempDir()
	job(t, dir, 2, 13, ofJob(dir, 1<<30))
	f := job(t, dir, 2, 0, func(f *fleet) {
		ofJob(dir, 1<<30)(f)
		f.register = func(w *worker) { w.state.Object("more", new(int)) }
	})
	if at := f.hub.FirstSteps[1]["w0"]; at.Step != 1 || at.First.Checkpoint != nil {
		t.Errorf("it begins with %+v %+v", at, at.First)
	}
	if done := f.check("w0"); done != 2 {
		t.Errorf("%d workers are done, want 2", done)
	}
}

// TestAFolderThatCannotBeUsedIsNoError where the user has not chosen it.
func TestAFolderThatCannotBeUsedIsNoError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := job(t, t.TempDir(), 1, 0, ofJob(filepath.Join(file, "folder"), 1<<30))
	if done := f.check("w0"); done != 1 {
		t.Errorf("%d workers are done, want 1", done)
	}
}
