package elastic

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// span is the numbers of [lo, hi).
type span struct{ lo, hi uint64 }

// spans is a set of numbers: ascending spans that do not touch. In JSON it is [[lo, hi], ...].
type spans []span

// add puts [lo, hi) into the set.
func (s *spans) add(lo, hi uint64) {
	if lo >= hi {
		return
	}
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].hi >= lo })
	j := i
	for ; j < len(*s) && (*s)[j].lo <= hi; j++ {
		lo, hi = min(lo, (*s)[j].lo), max(hi, (*s)[j].hi)
	}
	*s = slices.Replace(*s, i, j, span{lo, hi})
}

// count is the number of numbers in the set.
func (s spans) count() (n uint64) {
	for _, x := range s {
		n += x.hi - x.lo
	}
	return n
}

// meets returns how many of [lo, hi) are in the set.
func (s spans) meets(lo, hi uint64) (n uint64) {
	for i := sort.Search(len(s), func(i int) bool { return s[i].hi > lo }); i < len(s) && s[i].lo < hi && lo < hi; i++ {
		n += min(hi, s[i].hi) - max(lo, s[i].lo)
	}
	return n
}

// rest is the set of the numbers below n that are not in this one.
func (s spans) rest(n uint64) (r spans) {
	at := uint64(0)
	for _, x := range s {
		if at < x.lo {
			r = append(r, span{at, x.lo})
		}
		at = x.hi
	}
	if at < n {
		r = append(r, span{at, n})
	}
	return r
}

// within returns the numbers of the set that have the places [lo, hi) in it, in their order.
func (s spans) within(lo, hi uint64) (r spans) {
	before := uint64(0)
	for _, x := range s {
		n := x.hi - x.lo
		if a, b := max(lo, before), min(hi, before+n); a < b {
			r = append(r, span{x.lo + a - before, x.lo + b - before})
		}
		before += n
	}
	return r
}

// place returns the place of a number in the set.
func (s spans) place(x uint64) (at uint64, ok bool) {
	for _, y := range s {
		if y.lo <= x && x < y.hi {
			return at + x - y.lo, true
		}
		at += y.hi - y.lo
	}
	return 0, false
}

// MarshalJSON writes pairs.
func (s spans) MarshalJSON() ([]byte, error) {
	pairs := make([][2]uint64, len(s))
	for i, x := range s {
		pairs[i] = [2]uint64{x.lo, x.hi}
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads pairs.
func (s *spans) UnmarshalJSON(b []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(b, &pairs); err != nil {
		return err
	}
	*s = nil
	for i, p := range pairs {
		if p[0] >= p[1] || i > 0 && cmp.Less(p[0], pairs[i-1][1]) {
			return fmt.Errorf("spans: %v is no ascending list", pairs)
		}
		s.add(p[0], p[1])
	}
	return nil
}
