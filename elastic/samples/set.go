package samples

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// Interval is the numbers of [Lo, Hi).
type Interval struct{ Lo, Hi uint64 }

// Set is a set of numbers: ascending intervals that do not touch. In JSON it is [[lo, hi], ...].
type Set []Interval

// Add adds [lo, hi).
func (s *Set) Add(lo, hi uint64) {
	if lo >= hi {
		return
	}
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].Hi >= lo })
	j := i
	for ; j < len(*s) && (*s)[j].Lo <= hi; j++ {
		lo, hi = min(lo, (*s)[j].Lo), max(hi, (*s)[j].Hi)
	}
	*s = slices.Replace(*s, i, j, Interval{lo, hi})
}

// Len returns how many numbers are in the set.
func (s Set) Len() (n uint64) {
	for _, x := range s {
		n += x.Hi - x.Lo
	}
	return n
}

// Overlap returns how many numbers of [lo, hi) are in the set.
func (s Set) Overlap(lo, hi uint64) (n uint64) {
	for i := sort.Search(len(s), func(i int) bool { return s[i].Hi > lo }); i < len(s) && s[i].Lo < hi && lo < hi; i++ {
		n += min(hi, s[i].Hi) - max(lo, s[i].Lo)
	}
	return n
}

// Complement returns the numbers below n that are not in the set.
func (s Set) Complement(n uint64) (c Set) {
	at := uint64(0)
	for _, x := range s {
		if at < x.Lo {
			c = append(c, Interval{at, x.Lo})
		}
		at = x.Hi
	}
	if at < n {
		c = append(c, Interval{at, n})
	}
	return c
}

// Slice returns the elements of the set whose indices in ascending order are in [lo, hi).
func (s Set) Slice(lo, hi uint64) (part Set) {
	before := uint64(0)
	for _, x := range s {
		n := x.Hi - x.Lo
		if a, b := max(lo, before), min(hi, before+n); a < b {
			part = append(part, Interval{x.Lo + a - before, x.Lo + b - before})
		}
		before += n
	}
	return part
}

// Index returns the index of an element in ascending order.
func (s Set) Index(x uint64) (i uint64, ok bool) {
	for _, y := range s {
		if y.Lo <= x && x < y.Hi {
			return i + x - y.Lo, true
		}
		i += y.Hi - y.Lo
	}
	return 0, false
}

// MarshalJSON encodes the set as pairs.
func (s Set) MarshalJSON() ([]byte, error) {
	pairs := make([][2]uint64, len(s))
	for i, x := range s {
		pairs[i] = [2]uint64{x.Lo, x.Hi}
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON decodes pairs, which must be in ascending order.
func (s *Set) UnmarshalJSON(b []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(b, &pairs); err != nil {
		return err
	}
	*s = nil
	for i, p := range pairs {
		if p[0] >= p[1] || i > 0 && cmp.Less(p[0], pairs[i-1][1]) {
			return fmt.Errorf("intervals: %v is no ascending list", pairs)
		}
		s.Add(p[0], p[1])
	}
	return nil
}
