package shards

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// Of memory that is said to be unchanged, so much of each stretch is looked at.
const (
	stretchBytes = 64 << 10
	sampleBytes  = 4 << 10
)

// local is a part that a member needs, and what it has of it, maybe the same elements twice.
type local struct {
	into part
	from []part
}

// copyLocal copies what this member has of what it needs, on all cores. Several sets may have the
// same elements, so each part is filled by one of them.
//
// Parts whose memory has the commit already are left as they are. That the program has not changed
// them is what it says: a sample of each is compared, and all are copied if one differs.
func (x *transfer) copyLocal() {
	var all, unchanged []local
	for i := range x.into {
		for _, into := range x.into[i] {
			l := local{into, x.from[i]}
			all = append(all, l)
			if x.inPlace(into) {
				unchanged = append(unchanged, l)
			}
		}
	}
	var differ atomic.Bool
	inParallel(len(unchanged), func(k int) {
		unchanged[k].runs(func(memory, kept []byte) {
			if !differ.Load() && !alike(memory, kept) {
				differ.Store(true)
			}
		})
	})
	if !differ.Load() {
		all = slices.DeleteFunc(all, func(l local) bool { return x.inPlace(l.into) })
		for _, l := range unchanged {
			x.unchanged += l.into.bytes()
		}
	}
	inParallel(len(all), func(k int) {
		all[k].runs(func(memory, kept []byte) { copy(memory, kept) })
	})
}

// inPlace is whether a part is said to have what was chosen already.
func (x *transfer) inPlace(p part) bool { return p.has == x.chosen && x.chosen != (Commit{}) }

// runs calls f with the memory of the part and the same elements of what the member has.
func (l local) runs(f func(memory, kept []byte)) {
	for _, from := range l.from {
		if common, ok := from.box.Intersect(l.into.box); ok {
			reshard.Runs(common, from.box, l.into.box, from.tensor.Width, func(r reshard.Run) {
				f(l.into.memory[r.In:r.In+r.Bytes], from.memory[r.At:r.At+r.Bytes])
			})
		}
	}
}

// alike compares a sample of two memories of the same size; all of small ones.
func alike(a, b []byte) bool {
	for at := 0; at < len(a); at += stretchBytes {
		end := min(at+sampleBytes, len(a))
		if len(a) <= stretchBytes {
			end = len(a)
		}
		if !bytes.Equal(a[at:end], b[at:end]) {
			return false
		}
	}
	return true
}

// formerly is what the memory of a part has had since the generation before, if it was that of the
// same part.
func (s *State) formerly(p part) Commit {
	for _, o := range s.former[p.tensor.Name] {
		if len(p.memory) > 0 && len(o.memory) == len(p.memory) && &o.memory[0] == &p.memory[0] &&
			o.tensor.Equal(p.tensor) && o.box.Equal(p.box) {
			return s.filled
		}
	}
	return Commit{}
}

// Unchanged is how many bytes the last Sync has found in place, and not filled.
func (s *State) Unchanged() int { return s.unchanged }
