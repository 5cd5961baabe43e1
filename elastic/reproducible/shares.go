package reproducible

import (
	"slices"
	"time"
)

const (
	// gain is how much sooner a step must be expected to end for the shares to change.
	gain = 0.1
	// news is how much of a measured time goes into what is known of a rank.
	news = 0.25
)

// shares is how many micro-batches of a step each rank computes, by how fast the ranks are. It has
// no effect on the result. All ranks know the same times, so they have the same shares.
type shares struct {
	seconds []float64 // of a micro-batch, by rank; 0 = unknown, nil = all are
	sizes   []int     // of a step of as many micro-batches as these are together; nil = not decided
}

// even returns sizes that differ by one at most: of 7 for 3 ranks 3, 2 and 2.
func even(count, world int) []int {
	sizes := make([]int, world)
	for r := range sizes {
		sizes[r] = count / world
		if r < count%world {
			sizes[r]++
		}
	}
	return sizes
}

// fastest returns sizes with which the last rank ends as early as possible, of ranks that take so
// long for a micro-batch. Each has one at least, and there are as many: of 7 for ranks that take
// 1, 1 and 3 seconds 3, 3 and 1.
func fastest(count int, seconds []float64) []int {
	sizes := make([]int, len(seconds))
	for r := range sizes {
		sizes[r] = 1
	}
	for range count - len(seconds) {
		next := 0
		for r, s := range seconds {
			if float64(sizes[r]+1)*s < float64(sizes[next]+1)*seconds[next] {
				next = r
			}
		}
		sizes[next]++
	}
	return sizes
}

// of returns the sizes for a step of count micro-batches, on so many ranks.
func (s *shares) of(count, world int) []int {
	if len(s.sizes) == world && total(s.sizes) == count {
		return s.sizes
	}
	return even(count, world)
}

// measured notes how long each rank took for one of the count micro-batches of a step, 0 =
// unknown, and decides anew on the shares of the largest steps that there were. The last step of
// an epoch may have fewer micro-batches.
func (s *shares) measured(count int, took []float32) {
	if count < len(took) {
		return
	}
	if len(s.seconds) != len(took) {
		*s = shares{seconds: make([]float64, len(took))}
	}
	for r, t := range took {
		switch old, now := s.seconds[r], float64(t); {
		case now <= 0:
		case old <= 0:
			s.seconds[r] = now
		default:
			s.seconds[r] = (1-news)*old + news*now
		}
	}
	if total(s.sizes) < count {
		s.sizes = even(count, len(took))
	}
	if slices.Min(s.seconds) <= 0 || total(s.sizes) != count {
		return
	}
	if better := fastest(count, s.seconds); s.lasts(better) < (1-gain)*s.lasts(s.sizes) {
		s.sizes = better
	}
}

// lasts returns how long a step takes with such sizes.
func (s *shares) lasts(sizes []int) (seconds float64) {
	for r, n := range sizes {
		seconds = max(seconds, float64(n)*s.seconds[r])
	}
	return seconds
}

func total(sizes []int) (sum int) {
	for _, n := range sizes {
		sum += n
	}
	return sum
}

// clock returns the time since it was made, in seconds.
func clock() func() float64 {
	began := time.Now()
	return func() float64 { return time.Since(began).Seconds() }
}
