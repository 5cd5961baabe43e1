//go:build cgo

package main

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic"
	"github.com/regroup-io/regroup/elastic/samples"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// alone begins a training without an agent.
func alone(t *testing.T, options string) *training {
	t.Helper()
	t.Setenv("REGROUP_SOCKET", "")
	t.Setenv("TRACEPARENT", traceparent)
	tr, err := newTraining(options)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestATrainingAlone goes through all calls as a host makes them.
func TestATrainingAlone(t *testing.T) {
	tr := alone(t, `{"samples": 10, "seed": 1}`)
	weights := make([]byte, 8)
	if err := errors.Join(tr.tensor("w", weights), tr.set("epoch", []byte("0"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(0); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("next before the start: %v, want ErrInvalid", err)
	}
	if err := tr.commit(); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("commit in no session: %v, want ErrInvalid", err)
	}
	if err := tr.start(); err != nil {
		t.Fatal(err)
	}
	s, _, err := tr.next(-1)
	if err != nil || s.World != 1 || s.Traceparent != traceparent {
		t.Fatalf("%+v, %v, want a session alone", s, err)
	}
	if err := tr.tensor("late", weights); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("registered after the start: %v, want ErrInvalid", err)
	}
	binary.LittleEndian.PutUint64(weights, 5)
	if err := errors.Join(tr.set("epoch", []byte("1")), tr.consume(4, []int64{0, 1, 2, 3}), tr.commit()); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(weights, 6)
	if err := errors.Join(tr.set("epoch", []byte("2")), tr.restore()); err != nil {
		t.Fatal(err)
	}
	epoch, err := tr.get("epoch")
	if err != nil || string(epoch) != "1" || binary.LittleEndian.Uint64(weights) != 5 {
		t.Errorf("restored: %d, epoch %s, %v, want 5 of epoch 1", binary.LittleEndian.Uint64(weights), epoch, err)
	}
	if err := tr.consume(7, nil); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("7 samples where 6 are left: %v, want ErrInvalid", err)
	}
	if err := errors.Join(tr.consume(6, []int64{4, 5, 6, 7, 8, 9}), tr.leave(statusOK, "")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); !errors.Is(err, errEnd) {
		t.Errorf("after the work is complete: %v, want errEnd", err)
	}
	if err := samples.CheckLedger(tr.state.Ledger()); err != nil {
		t.Error(err)
	}
	tr.close()
}

// TestLiveCommits: what is live is not copied, and returns to the last copy when it has changed.
func TestLiveCommits(t *testing.T) {
	tr := alone(t, "{}")
	weights, rest := make([]byte, 8), make([]byte, 1)
	if err := errors.Join(tr.tensor("w", weights), tr.tensor("rest", rest), tr.live("w", false), tr.start()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); err != nil {
		t.Fatal(err)
	}
	step := func(v byte, commit func() error) {
		t.Helper()
		weights[0], rest[0] = v, v
		if err := errors.Join(tr.record(0, nil), tr.alike(7), tr.changed(), commit()); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, w, r byte) {
		t.Helper()
		if err := tr.restore(); err != nil || weights[0] != w || rest[0] != r {
			t.Errorf("%s: %d and %d, %v, want %d and %d", what, weights[0], rest[0], err, w, r)
		}
	}
	step(1, tr.commit)
	if same, err := tr.unchanged(); err != nil || !same {
		t.Errorf("after a copy: %t, %v", same, err)
	}
	weights[0] = 9
	if same, err := tr.unchanged(); err != nil || same {
		t.Errorf("after a change: %t, %v", same, err)
	}
	if copies, err := tr.agree(false); err != nil || !copies {
		t.Errorf("a commit that is no live one: copies %t, %v", copies, err)
	}
	step(1, tr.commit)
	if _, err := tr.agree(true); err != nil { // one is due after 400 times the few nanoseconds that it takes
		t.Error(err)
	}
	step(2, tr.commitLive)
	rest[0] = 8
	want("what is live stays, the rest returns", 2, 2)
	step(3, tr.commitAlone)
	rest[0] = 8
	want("the same of a commit that others have not agreed on", 3, 3)
	step(5, tr.commitAlone)
	if err := tr.changed(); err != nil {
		t.Fatal(err)
	}
	weights[0] = 6
	want("what has changed returns to the last copy, which the last return has made", 3, 3)
	if err := tr.leave(statusOK, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); !errors.Is(err, errEnd) {
		t.Errorf("after the work is complete: %v, want errEnd", err)
	}
	tr.close()
}

// TestAShardedTraining: the parts are registered in a session of their own, and come back.
func TestAShardedTraining(t *testing.T) {
	tr := alone(t, `{}`)
	part := elastic.Shard{Name: "w", Type: "uint8", Width: 1, Shape: []int{4}, Offset: []int{0}, Size: []int{4}, Memory: []byte{1, 2, 3, 4}}
	for _, kept := range [][2]int{{-1, 0}, {0, -1}, {0, 1}, {1, 4}} {
		if err := tr.sharded(kept[0], kept[1]); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("%d copies, parity of %d: %v, want ErrInvalid", kept[0], kept[1], err)
		}
	}
	if err := errors.Join(tr.sharded(0, 4), tr.start()); err != nil {
		t.Fatal(err)
	}
	s, _, err := tr.next(-1)
	if err != nil || s.Stage != elastic.Arranging {
		t.Fatalf("%+v, %v, want a session to register parts in", s, err)
	}
	if err := errors.Join(tr.tensor("late", nil), tr.sharded(1, 0)); !errors.Is(err, errStarted) {
		t.Errorf("what is not a part: %v, want errStarted", err)
	}
	wrong := part
	wrong.Size = []int{5}
	if err := tr.shard(wrong); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("a part beyond its tensor: %v, want ErrInvalid", err)
	}
	if err := errors.Join(tr.shard(part), tr.leave(statusOK, "")); err != nil {
		t.Fatal(err)
	}
	if s, _, err = tr.next(-1); err != nil || s.Stage != elastic.Training {
		t.Fatalf("%+v, %v, want a session to train in", s, err)
	}
	if err := tr.shard(part); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("a part while training: %v, want ErrInvalid", err)
	}
	part.Memory[0] = 7
	if err := errors.Join(tr.consume(0, nil), tr.commit()); err != nil {
		t.Fatal(err)
	}
	part.Memory[0] = 9
	if err := tr.restore(); err != nil || part.Memory[0] != 7 {
		t.Errorf("restored: %d, %v", part.Memory[0], err)
	}
	if err := tr.leave(statusOK, ""); err != nil {
		t.Fatal(err)
	}
	tr.close()
}

// TestAFailedTraining ends with what the host said.
func TestAFailedTraining(t *testing.T) {
	tr := alone(t, `{}`)
	if err := tr.start(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); err != nil {
		t.Fatal(err)
	}
	if err := tr.leave(statusFailed, "no such file"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); err == nil || errors.Is(err, errEnd) {
		t.Errorf("%v, want that the training function failed", err)
	}
	tr.close()
}

// TestAStop is reported by the next commit, which is made.
func TestAStop(t *testing.T) {
	tr := alone(t, `{}`)
	if err := errors.Join(tr.set("step", []byte("0")), tr.start()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); err != nil {
		t.Fatal(err)
	}
	if err := tr.checkUpdates(); err != nil {
		t.Errorf("no news: %v", err)
	}
	tr.stopping.Store(true)
	if err := tr.checkUpdates(); !errors.Is(err, elastic.ErrStopped) {
		t.Errorf("news: %v, want ErrStopped", err)
	}
	err := errors.Join(tr.set("step", []byte("1")), tr.commit())
	if s, _ := statusOf(err); s != statusStopped {
		t.Errorf("commit: %v, want ErrStopped", err)
	}
	if err := errors.Join(tr.set("step", []byte("2")), tr.restore(), tr.leave(statusStopped, "")); err != nil {
		t.Fatal(err)
	}
	if b, err := tr.get("step"); err != nil || string(b) != "1" {
		t.Errorf("committed step %s, %v, want 1", b, err)
	}
	if _, _, err := tr.next(-1); !errors.Is(err, elastic.ErrStopped) {
		t.Errorf("after a stop: %v, want ErrStopped", err)
	}
	tr.close()
}

// TestJoinFirst: the host registers its state in a session, and keeps the communicator into the
// training and beyond.
func TestJoinFirst(t *testing.T) {
	tr := alone(t, `{"join": true}`)
	if err := tr.start(); err != nil {
		t.Fatal(err)
	}
	if err := tr.data(10, 1, false); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("registered before the session: %v, want ErrInvalid", err)
	}
	s, handle, err := tr.next(-1)
	if err != nil || s.Stage != elastic.Preparing {
		t.Fatalf("%+v, %v, want a session to register in", s, err)
	}
	if err := tr.commit(); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("commit before the state: %v, want ErrInvalid", err)
	}
	weights := make([]byte, 8)
	if err := errors.Join(tr.prologue.Add([]byte("x")), tr.data(10, 1, false), tr.tensor("w", weights), tr.set("epoch", []byte("0"))); err != nil {
		t.Fatal(err)
	}
	if err := tr.leave(statusOK, ""); err != nil {
		t.Fatal(err)
	}
	s, again, err := tr.next(-1)
	if err != nil || s.Stage != elastic.Training || again != handle {
		t.Fatalf("%+v, communicator %d and %d, %v, want a training with the same", s, handle, again, err)
	}
	if err := tr.data(10, 1, false); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("registered while training: %v, want ErrInvalid", err)
	}
	if err := errors.Join(tr.consume(10, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), tr.commit(), tr.leave(statusOK, "")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tr.next(-1); !errors.Is(err, errEnd) {
		t.Errorf("%v, want errEnd", err)
	}
	c, there := lookUp[*communicator](handle)
	if !there || c.Barrier(background) != nil {
		t.Error("after the training the communicator is gone")
	}
	if err := samples.CheckLedger(tr.state.Ledger()); err != nil || tr.state.Ledger().Epochs[0].Count != 10 {
		t.Errorf("ledger %+v, %v", tr.state.Ledger(), err)
	}
	tr.close()
	if _, there := lookUp[*communicator](handle); there {
		t.Error("the communicator outlives its training")
	}
}

// TestCloseInASession ends it.
func TestCloseInASession(t *testing.T) {
	tr := alone(t, `{}`)
	if err := tr.start(); err != nil {
		t.Fatal(err)
	}
	_, handle, err := tr.next(-1)
	if err != nil {
		t.Fatal(err)
	}
	tr.close()
	if _, there := lookUp[*communicator](handle); there {
		t.Error("the communicator of the session is still open")
	}
}

func TestOrder(t *testing.T) {
	whole := make([]int64, 1000)
	if err := order(1000, 3, 2, 0, whole); err != nil {
		t.Fatal(err)
	}
	part := make([]int64, 10)
	if err := order(1000, 3, 2, 500, part); err != nil || !slices.Equal(part, whole[500:510]) {
		t.Errorf("places 500 to 510 are %v, %v, want %v", part, err, whole[500:510])
	}
	slices.Sort(whole)
	for i, v := range whole {
		if v != int64(i) {
			t.Fatalf("no permutation: %d at %d", v, i)
		}
	}
	if err := order(1000, 3, 2, 995, part); !errors.Is(err, collective.ErrInvalid) {
		t.Errorf("beyond the end: %v, want ErrInvalid", err)
	}
}

// TestOptionsThatAreNotKnown are refused: most likely they are misspelt.
func TestOptionsThatAreNotKnown(t *testing.T) {
	for _, options := range []string{`{"sample": 1}`, `{} {}`, `[`, ``} {
		if _, err := newTraining(options); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", options, err)
		}
	}
}
