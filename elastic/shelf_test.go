package elastic

import (
	"bytes"
	"context"
	"testing"

	"pgregory.net/rapid"
)

// TestWhatIsReadIsNotWrittenOver plays a trainer that commits and readers that come and go, in any order: what a reader
// holds never changes, it is a whole commit, and the buffers stay few.
func TestWhatIsReadIsNotWrittenOver(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := NewState(nil)
		tensor := make([]byte, 5000)
		Tensor(s, "tensor", tensor)
		type reader struct {
			s     *snapshot
			was   []byte
			unpin func()
		}
		var readers []reader
		buffers := map[*snapshot]bool{}
		value, step := byte(0), uint64(0)
		for range rapid.IntRange(1, 40).Draw(r, "actions") {
			switch rapid.SampledFrom([]string{"save", "save", "pin", "last", "unpin"}).Draw(r, "action") {
			case "save":
				value++
				step++
				for i := range tensor[:rapid.SampledFrom([]int{0, 1, len(tensor)}).Draw(r, "changed")] {
					tensor[i] = value
				}
				s.step = step
				if err := s.save(1); err != nil {
					r.Fatal(err)
				}
				buffers[s.held] = true
				if !bytes.Equal(s.held.data, tensor) {
					r.Fatal("the commit is not the state")
				}
			case "pin", "last":
				last := len(readers) > 0 && rapid.Bool().Draw(r, "wait for the last")
				if last {
					s.shelf.end()
				}
				p, unpin := s.shelf.pin(context.Background(), last)
				if p == nil {
					if s.held != nil {
						r.Fatal("there is a commit, and it can not be read")
					}
					continue
				}
				if last && p != s.held {
					r.Fatal("the last commit is not the one that is held")
				}
				s.shelf.spare(p)
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
				if got, want := x.s.piece(0), (&snapshot{data: x.was, pieces: make([]piece, 1)}).piece(0); got != want {
					r.Fatal("the hash of a leaf is not that of its content")
				}
			}
			s.shelf.mu.Lock()
			distinct, free := len(s.shelf.pins), len(s.shelf.free)
			s.shelf.mu.Unlock()
			if free > 2 || len(readers) == 0 && distinct > 0 {
				r.Fatalf("%d buffers are kept, %d are read by nobody", free, distinct)
			}
		}
		for _, x := range readers {
			x.unpin()
		}
		if n := len(s.shelf.free); n > 1 && len(s.shelf.pins) == 0 {
			r.Fatalf("%d buffers are kept although nobody reads", n)
		}
	})
}
