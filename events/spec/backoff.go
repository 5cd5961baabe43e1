package spec

import "time"

// FreeRetries is how many generations in a row may be lost to faults without progress before each
// of them costs the failure budget and the next one waits: faults come in pairs.
const FreeRetries = 2

const (
	firstBackOff   = 250 * time.Millisecond
	longestBackOff = 30 * time.Second
)

// BackOff is how long after its fault the generation after n without progress is sealed at the
// earliest. What breaks each generation at the same place would otherwise break thousands a minute.
// It leaves most of elastic.timeout, within which the generation must be sealed.
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
