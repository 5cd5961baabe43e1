package spec

import "time"

// FreeRetries is how many consecutive generations may be lost to faults without progress before
// each counts as a failure and the next one is delayed: faults often come in pairs.
const FreeRetries = 2

const (
	firstBackOff   = 250 * time.Millisecond
	longestBackOff = 30 * time.Second
)

// BackOff returns the minimum delay between a fault and the seal of the generation after n without
// progress. A fault that breaks each generation at the same point would otherwise break thousands a
// minute. Most of elastic.timeout, within which the generation must be sealed, remains.
func (e Elastic) BackOff(n int) time.Duration {
	if n <= FreeRetries {
		return 0
	}
	d := longestBackOff
	if doublings := n - FreeRetries - 1; doublings < 16 {
		d = min(firstBackOff<<doublings, longestBackOff)
	}
	if e.Timeout > 0 {
		d = min(d, e.Timeout.D()/4)
	}
	return d
}
