package worker

import (
	"strconv"

	"github.com/regroup-io/regroup/events"
)

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// randomFrom is where the random part of an incarnation begins: after 10 digits of time and 5 of a counter.
const randomFrom = 15

// incarnation makes a ULID: 48 bits of time, 25 of a counter, the rest of the agent's own. The machine has no randomness: it
// inherits that of the agent's incarnation, and lists of an agent's workers are short because they have it in common. Later
// ones are greater even if the clock steps back, because judges order the lives of a place by them.
func (t *turn) incarnation() events.Incarnation {
	s := t.s
	s.made++
	s.madeAt = max(s.madeAt, t.now.UnixMilli(), 0)
	var id [26]byte
	digits(id[:10], uint64(s.madeAt))
	digits(id[10:randomFrom], s.made)
	agent := string(s.cfg.Agent)
	if len(agent) != len(id) { // no ULID: as good as one
		sum := events.Token("agent", agent)
		for i := range len(id) - randomFrom {
			v, _ := strconv.ParseUint(sum[2*i:2*i+2], 16, 8)
			id[randomFrom+i] = crockford[v&31]
		}
		return events.Incarnation(id[:])
	}
	copy(id[randomFrom:], agent[randomFrom:])
	return events.Incarnation(id[:])
}

// digits writes v in base 32, most significant first.
func digits(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = crockford[v&31]
		v >>= 5
	}
}
