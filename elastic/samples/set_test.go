package samples

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSetAgainstBooleans compares a set with an array of booleans.
func TestSetAgainstBooleans(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const n = 40
		var s Set
		var set [n]bool
		for range rapid.IntRange(0, 12).Draw(r, "adds") {
			lo, hi := rapid.Uint64Range(0, n).Draw(r, "lo"), rapid.Uint64Range(0, n).Draw(r, "hi")
			s.Add(lo, hi)
			for i := lo; i < hi; i++ {
				set[i] = true
			}
		}
		var members, others []uint64
		for i := range uint64(n) {
			if set[i] {
				members = append(members, i)
			} else {
				others = append(others, i)
			}
		}
		list := func(s Set) (all []uint64) {
			for i, x := range s {
				if x.Lo >= x.Hi || i > 0 && x.Lo <= s[i-1].Hi {
					r.Fatalf("%v are not ascending intervals that do not touch", s)
				}
				for j := x.Lo; j < x.Hi; j++ {
					all = append(all, j)
				}
			}
			return all
		}
		if !slices.Equal(list(s), members) || !slices.Equal(list(s.Complement(n)), others) || s.Len() != uint64(len(members)) {
			r.Fatalf("%v: want %v", s, members)
		}
		lo, hi := rapid.IntRange(0, n).Draw(r, "from"), rapid.IntRange(0, n).Draw(r, "to")
		if got, want := list(s.Slice(uint64(lo), uint64(hi))), members[min(lo, hi, len(members)):min(max(hi, lo), len(members))]; lo <= hi && !slices.Equal(got, want) {
			r.Fatalf("%v within [%d, %d): %v, want %v", s, lo, hi, got, want)
		}
		overlap := uint64(0)
		for i := lo; i < hi; i++ {
			if set[i] {
				overlap++
			}
		}
		if got := s.Overlap(uint64(lo), uint64(hi)); got != overlap {
			r.Fatalf("%v overlaps [%d, %d) in %d, want %d", s, lo, hi, got, overlap)
		}
		for at, x := range members {
			if got, ok := s.Index(x); !ok || got != uint64(at) {
				r.Fatalf("%d is number %d of %v, want %d", x, got, s, at)
			}
		}
		b, err := json.Marshal(s)
		var back Set
		if err := errors.Join(err, json.Unmarshal(b, &back)); err != nil || !slices.Equal(back, s) {
			r.Fatalf("%v became %s and %v: %v", s, b, back, err)
		}
	})
	var s Set
	for _, bad := range []string{`[[2,1]]`, `[[5,6],[1,2]]`, `[[1]]x`} {
		if json.Unmarshal([]byte(bad), &s) == nil {
			t.Errorf("%s is taken for a set", bad)
		}
	}
}
