package worker

import (
	"strconv"

	"github.com/regroup-io/regroup/events"
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// incarnation makes a ULID: 48 bits of time, 25 of a counter, the rest a hash. The machine has no randomness: it
// inherits that of the agent's own incarnation. Later ones are greater even if the clock steps back, because judges
// order the lives of a place by them.
func (t *turn) incarnation() events.Incarnation {
	s := t.s
	s.made++
	s.madeAt = max(s.madeAt, t.now.UnixMilli(), 0)
	var id [26]byte
	digits(id[:10], uint64(s.madeAt))
	digits(id[10:15], s.made)
	sum := events.Token("worker", string(s.cfg.Agent), strconv.FormatUint(s.made, 10), strconv.FormatInt(s.madeAt, 10))
	for i := range 11 {
		v, _ := strconv.ParseUint(sum[2*i:2*i+2], 16, 8)
		id[15+i] = crockford[v&31]
	}
	return events.Incarnation(id[:])
}

// digits writes v in base 32, most significant first.
func digits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = crockford[v&31]
		v >>= 5
	}
}
