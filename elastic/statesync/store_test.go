package statesync

import (
	"bytes"
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPinnedCommitIsNotOverwritten plays a trainer that commits and readers that come and go, in
// any order: what a reader holds never changes, it is a whole commit, and the buffers stay few.
func TestPinnedCommitIsNotOverwritten(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rep := newTestReplica()
		tensor := make([]byte, 5000)
		rep.Tensors.Add("tensor", "uint8", tensor)
		type reader struct {
			s     *Snapshot
			was   []byte
			unpin func()
		}
		var readers []reader
		buffers := map[*Snapshot]bool{}
		value, step := byte(0), uint64(0)
		for range rapid.IntRange(1, 40).Draw(r, "actions") {
			switch rapid.SampledFrom([]string{"save", "save", "pin", "last", "unpin"}).Draw(r, "action") {
			case "save":
				value++
				step++
				for i := range tensor[:rapid.SampledFrom([]int{0, 1, len(tensor)}).Draw(r, "changed")] {
					tensor[i] = value
				}
				rep.Commit(testMeta(step), 1, step)
				buffers[rep.newest] = true
				if !bytes.Equal(rep.newest.data, tensor) {
					r.Fatal("the commit is not the state")
				}
			case "pin", "last":
				last := len(readers) > 0 && rapid.Bool().Draw(r, "wait for the last")
				if last {
					rep.store.EndGeneration()
				}
				p, unpin := rep.store.pin(context.Background(), last)
				if p == nil {
					if rep.newest != nil {
						r.Fatal("there is a commit, and it can not be read")
					}
					continue
				}
				if last && p != rep.newest {
					r.Fatal("the last commit is not the one that is held")
				}
				rep.store.Reserve(p)
				readers = append(readers, reader{p, bytes.Clone(p.data), unpin})
			case "unpin":
				if len(readers) > 0 {
					readers[0].unpin()
					readers = readers[1:]
				}
			}
			for _, x := range readers {
				if !bytes.Equal(x.s.data, x.was) {
					r.Fatal("a commit was written over while it was read")
				}
				if got, want := x.s.hash(0), (&Snapshot{data: x.was, hashes: make([]lazyHash, 1)}).hash(0); got != want {
					r.Fatal("the hash of a chunk is not that of its content")
				}
			}
			rep.store.mu.Lock()
			distinct, free := len(rep.store.pins), len(rep.store.free)
			rep.store.mu.Unlock()
			if free > 2 || len(readers) == 0 && distinct > 0 {
				r.Fatalf("%d buffers are kept, %d are read by nobody", free, distinct)
			}
		}
		for _, x := range readers {
			x.unpin()
		}
		if n := len(rep.store.free); n > 1 && len(rep.store.pins) == 0 {
			r.Fatalf("%d buffers are kept although nobody reads", n)
		}
	})
}

// TestMadeAt: a commit is as old as it was made, also when it is copied later; one that was
// received has no age.
func TestMadeAt(t *testing.T) {
	g := newGroup(t, 2)
	r := g.replicas[0]
	r.KeepTwo()
	if !r.SetLive("tensor") {
		t.Fatal("there is no tensor")
	}
	if at := r.MadeAt(Commit{}); !at.IsZero() {
		t.Errorf("before the first commit: %v", at)
	}
	began := time.Now()
	r.Commit(testMeta(1), 1, 1)
	first := r.MadeAt(Commit{1, 1})
	r.CommitLive(testMeta(2), 1, 2)
	second := r.MadeAt(Commit{1, 2})
	if first.Before(began) || second.Before(first) || time.Now().Before(second) {
		t.Errorf("began %v, the first is of %v, the second of %v", began, first, second)
	}
	r.Restore() // which copies the live tensors
	if got, again := r.MadeAt(Commit{1, 1}), r.MadeAt(Commit{1, 2}); !got.Equal(first) || !again.Equal(second) {
		t.Errorf("afterwards the first is of %v, the second of %v; want %v and %v", got, again, first, second)
	}
	g.mustSync(2, 0, 1)
	if got := r.MadeAt(Commit{1, 2}); !got.Equal(second) {
		t.Errorf("after the sync: %v, want %v", got, second)
	}
	if got := g.replicas[1].Last(); got != (Commit{1, 2}) || !g.replicas[1].MadeAt(got).IsZero() {
		t.Errorf("the other has received %v of %v", got, g.replicas[1].MadeAt(got))
	}
}
