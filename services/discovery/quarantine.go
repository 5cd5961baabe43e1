package discovery

import (
	"time"

	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// Quarantine configures when a slot or a node is quarantined, and for how long.
type Quarantine struct {
	// Failures of one slot within Window that quarantine it; 0 = never. If too small, a faulty
	// program quarantines healthy slots; if too large, a broken GPU costs every job that many
	// restarts.
	Charges int `envconfig:"CHARGES" default:"3" desc:"failures of one slot within the window that quarantine it; 0 = never"`
	// Losses of a node within Window that quarantine it; 0 = never.
	Losses int `envconfig:"LOSSES" default:"3" desc:"losses of a node within the window that quarantine it; 0 = never"`
	// Older failures and losses never count.
	Window time.Duration `envconfig:"WINDOW" default:"10m" desc:"older failures and losses never count"`
	// Length of the first quarantine; each further one is twice as long as the previous.
	First time.Duration `envconfig:"FIRST" default:"1m" desc:"length of the first quarantine; each further one is twice as long as the previous"`
	// Maximum length of a quarantine, except by hand.
	Most time.Duration `envconfig:"MOST" default:"1h" desc:"maximum length of a quarantine, except by hand"`
	// Time without a failure that undoes one doubling; 0 = never.
	Decay time.Duration `envconfig:"DECAY" default:"1h" desc:"time without a failure that undoes one doubling; 0 = never"`
}

// DefaultQuarantine returns the defaults in the tags.
func DefaultQuarantine() Quarantine {
	return Quarantine{Charges: 3, Losses: 3, Window: 10 * time.Minute, First: time.Minute, Most: time.Hour, Decay: time.Hour}
}

// NoQuarantine disables quarantine except by hand: on a single machine it would only delay.
func NoQuarantine() Quarantine {
	q := DefaultQuarantine()
	q.Charges, q.Losses = 0, 0
	return q
}

func (q Quarantine) rules() liveness.Rules {
	return liveness.Rules{Failures: q.Charges, Losses: q.Losses, Window: q.Window, First: q.First, Max: q.Most, Decay: q.Decay}
}

func (q Quarantine) validate(fault func(wrong bool, format string, args ...any)) {
	fault(q.Charges < 0, "Quarantine.Charges is %d: 0 or more", q.Charges)
	fault(q.Losses < 0, "Quarantine.Losses is %d: 0 or more", q.Losses)
	fault(q.Decay < 0, "Quarantine.Decay is %s: 0 or more", q.Decay)
	if q.Charges > 0 || q.Losses > 0 {
		fault(q.Window <= 0, "Quarantine.Window is %s: it must be positive", q.Window)
		fault(q.First <= 0, "Quarantine.First is %s: it must be positive", q.First)
		fault(q.Most < q.First, "Quarantine.Most is %s: not less than First, %s", q.Most, q.First)
	}
}
