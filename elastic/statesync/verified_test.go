package statesync

import (
	"log/slog"
	"testing"

	"github.com/regroup-io/regroup/elastic/checkpoint"
)

// all commits the same step on several members.
func (g *group) all(generation, step uint64, content int64, members ...int) {
	for _, i := range members {
		copy(g.tensors[i], g.tensors[members[0]])
		g.commit(i, generation, step, content)
	}
}

// at checks what members have after a sync.
func (g *group) at(generation, step uint64, content int64, members ...int) {
	g.t.Helper()
	for _, i := range members {
		if gen, at, _, _ := g.replicas[i].Committed(); gen != generation || at != step || g.tensors[i][1] != content {
			g.t.Errorf("member %d has %d of commit (%d, %d), want %d of (%d, %d)", i, g.tensors[i][1], gen, at, content, generation, step)
		}
	}
}

// TestAllReturnToTheVerifiedCommit, also a newcomer that has a newer one, and one that has none.
func TestAllReturnToTheVerifiedCommit(t *testing.T) {
	g := newGroup(t, 4)
	g.all(1, 10, 100, 0, 1)
	for _, r := range g.replicas[:2] {
		if !r.Verification().Hold() {
			t.Fatal("the commit is not held")
		}
	}
	g.all(1, 11, 110, 0, 1)
	for _, r := range g.replicas[:2] {
		r.Verification().Verify()
		if !r.Verification().Hold() { // of step 11, which nobody verifies
			t.Fatal("the commit is not held")
		}
	}
	g.all(1, 12, 120, 0, 1, 2) // member 2 has come meanwhile
	for _, r := range g.replicas[:2] {
		if c, ok := r.Verification().Distrust(); !ok || c != (Commit{1, 10}) {
			t.Errorf("it returns to %v, %t", c, ok)
		}
	}
	g.mustSync(2, 2, 3, 0, 1)
	g.at(1, 10, 100, 0, 1, 2, 3)
	// What comes after it counts as ever.
	g.all(2, 11, 111, 0, 1, 2, 3)
	g.mustSync(3, 0, 1, 2, 3)
	g.at(2, 11, 111, 0, 1, 2, 3)
	// The verified commit is kept, and can be returned to again.
	g.all(3, 12, 122, 0, 1, 2, 3)
	if c, ok := g.replicas[1].Verification().Distrust(); !ok || c != (Commit{1, 10}) {
		t.Errorf("the second time it returns to %v, %t", c, ok)
	}
	g.mustSync(4, 0, 1, 2, 3)
	g.at(1, 10, 100, 0, 1, 2, 3)
}

// TestWithoutAVerifiedCommit the newest one stays what it is.
func TestWithoutAVerifiedCommit(t *testing.T) {
	g := newGroup(t, 2)
	if g.replicas[0].Verification().Hold() {
		t.Error("there is nothing to hold")
	}
	if _, ok := g.replicas[0].Verification().Distrust(); ok {
		t.Error("there is nothing to return to")
	}
	g.all(1, 10, 100, 0, 1)
	for _, r := range g.replicas {
		r.Verification().Hold()
		if c, ok := r.Verification().Distrust(); ok {
			t.Errorf("it returns to %v, which nobody has verified", c)
		}
	}
	g.mustSync(2, 0, 1)
	g.at(1, 10, 100, 0, 1)
}

// TestALiveCommitIsNotHeld: there is no copy of it.
func TestALiveCommitIsNotHeld(t *testing.T) {
	g := newGroup(t, 1)
	r := g.replicas[0]
	r.SetLive("tensor")
	g.commit(0, 1, 10, 100)
	r.Changed()
	r.CommitLive(testMeta(11), 1, 11)
	if r.Verification().Hold() {
		t.Error("it is held")
	}
	r.Changed()
	g.commit(0, 1, 12, 120)
	if !r.Verification().Hold() {
		t.Error("the copy is not held")
	}
}

// TestHeldCommitsAreNotOverwritten by those that follow, and what is given up is used again.
func TestHeldCommitsAreNotOverwritten(t *testing.T) {
	g := newGroup(t, 1)
	r := g.replicas[0]
	buffers := map[*Snapshot]bool{}
	for step := uint64(1); step <= 40; step++ {
		g.commit(0, 1, step, int64(step))
		buffers[r.Newest()] = true
		if step%5 == 0 {
			r.Verification().Hold()
		}
		if step%5 == 2 {
			r.Verification().Verify() // of the commit two steps ago
		}
	}
	if len(buffers) > 5 { // newest, next, held, verified, and one to change places
		t.Errorf("%d buffers were needed", len(buffers))
	}
	if c, ok := r.Verification().Distrust(); !ok || c.Step != 35 {
		t.Fatalf("it returns to %v, %t, want step 35", c, ok)
	}
	r.Restore()
	g.at(1, 35, 35, 0)
}

// TestCheckpointsOfVerifiedCommits are marked, and those of distrusted commits removed.
func TestCheckpointsOfVerifiedCommits(t *testing.T) {
	g := newGroup(t, 1)
	r := g.replicas[0]
	dir, err := checkpoint.Open(t.TempDir(), 9)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.UseCheckpoints(dir, false, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	commit := func(step uint64) {
		t.Helper()
		g.commit(0, 1, step, int64(step))
		s := r.Newest()
		i := checkpoint.Image{Name: checkpoint.Name{Run: 1, Generation: 1, Step: step}, Meta: s.Meta(), Data: s.Data()}
		if err := dir.Write(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	v := r.Verification()
	v.Verify() // nothing is held
	commit(1)
	commit(2)
	v.Hold()
	commit(3)
	v.Verify()
	v.Distrust()
	all, err := dir.List()
	if err != nil || len(all) != 2 || all[0].Step != 2 || !dir.Verified(all[0]) || !dir.Verified(all[1]) {
		t.Errorf("left are %v (%v), want the verified ones of steps 2 and 1", all, err)
	}
}
