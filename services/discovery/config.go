package discovery

import (
	"errors"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/discovery/liveness"
)

// HeartbeatEvery is the default interval of agents' heartbeats. In large fleets it is longer.
const HeartbeatEvery = 500 * time.Millisecond

// Config is the configuration of the service.
type Config struct {
	// Silence after which a node gets no new work. If too small, one or two late heartbeats empty a
	// healthy node; if too large, new work is placed on dead nodes for that long.
	SuspectAfter time.Duration `envconfig:"SUSPECT_AFTER" default:"1.5s" desc:"silence after which a node gets no new work"`
	// Silence after which a node is pinged, and lost if it does not answer. If too small, the nodes
	// of a broker that dies silently are lost: they need about 1.5 s to notice, and 0.5 s to
	// connect to another one. If too large, jobs whose peers cannot detect the failure wait that
	// long.
	LostAfter time.Duration `envconfig:"LOST_AFTER" default:"2s" desc:"silence after which a node is pinged, and lost if it does not answer"`
	// Timeout of a ping. If too small, a busy node is lost; if too large, it adds to LostAfter.
	PingTimeout time.Duration `envconfig:"PING_TIMEOUT" default:"500ms" desc:"timeout of a ping"`
	// After the broker saw its connection close, an agent has this long to reconnect. Then it is
	// pinged, and lost if it does not answer. If too small, a broken link costs nodes; if too
	// large, jobs whose peers cannot detect the failure wait that long.
	ReconnectWithin time.Duration `envconfig:"RECONNECT_WITHIN" default:"1s" desc:"how long an agent whose connection has closed may take to reconnect before it is pinged"`
	// An agent that discovery does not answer for this long kills the processes that may be started
	// elsewhere: those of recovery by restart. Jobs start them elsewhere when it has passed since
	// the last heartbeat. With several brokers both take 0.7 s longer. If too small, the loss of a
	// broker, which agents notice after 1.5 s, kills these processes; if too large, jobs wait that
	// long for the places of a lost node.
	Lease time.Duration `envconfig:"LEASE" default:"3s" desc:"how long an agent without an answer of discovery lets processes run that may be started elsewhere, and how long jobs wait for that"`
	// The same for processes that recover in place. A job waits for it only where no other member
	// is left. If too small, an outage of all brokers ends them; if too large, a job all of whose
	// nodes are lost waits that long.
	LeaseInPlace time.Duration `envconfig:"LEASE_IN_PLACE" default:"1m" desc:"the same for processes that recover in place, where no other member of the job is left"`
	// How long a lost or departed node stays in the bucket; 0 = for ever.
	KeepLost time.Duration `envconfig:"KEEP_LOST" default:"24h" desc:"how long the record of a lost or departed node is kept; 0 = for ever"`

	Quarantine Quarantine `envconfig:"QUARANTINE"`
	HostConfig
}

// DefaultConfig returns the defaults in the tags.
func DefaultConfig() Config {
	return Config{SuspectAfter: 1500 * time.Millisecond, LostAfter: 2 * time.Second, PingTimeout: 500 * time.Millisecond, ReconnectWithin: time.Second, Lease: 3 * time.Second, LeaseInPlace: time.Minute, KeepLost: 24 * time.Hour, Quarantine: defaultQuarantine(), HostConfig: defaultHosts()}
}

func (c Config) lease() liveness.Lease {
	return liveness.Lease{Restart: c.Lease, InPlace: c.LeaseInPlace}
}

// Validate returns all errors of the configuration, joined.
func (c Config) Validate() error {
	var bad []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, errcode.Errorf(errcode.Invalid, "discovery: "+format, args...))
		}
	}
	fault(c.SuspectAfter < 2*HeartbeatEvery, "SuspectAfter is %s: at least two heartbeats of %s, or every node is suspected", c.SuspectAfter, HeartbeatEvery)
	fault(c.LostAfter < c.SuspectAfter, "LostAfter is %s: not less than SuspectAfter, %s", c.LostAfter, c.SuspectAfter)
	fault(c.PingTimeout <= 0, "PingTimeout is %s: it must be positive", c.PingTimeout)
	fault(c.ReconnectWithin <= 0, "ReconnectWithin is %s: it must be positive", c.ReconnectWithin)
	fault(c.Lease < 2*HeartbeatEvery, "Lease is %s: at least two heartbeats of %s, or agents end healthy processes", c.Lease, HeartbeatEvery)
	fault(c.LeaseInPlace < c.Lease, "LeaseInPlace is %s: not less than Lease, %s", c.LeaseInPlace, c.Lease)
	fault(c.KeepLost < 0, "KeepLost is %s: 0 or more", c.KeepLost)
	c.Quarantine.validate(fault)
	c.HostConfig.validate(fault)
	return errors.Join(bad...)
}

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
	// Largest share of all slots that may be quarantined at a time, except by hand. The last slot
	// never is. If too large, failures of one kind can stop all work; if too small, work goes to
	// broken slots.
	Share float64 `envconfig:"SHARE" default:"0.5" desc:"largest share of all slots that may be quarantined at a time, except by hand; the last slot never is"`
}

// defaultQuarantine returns the defaults in the tags.
func defaultQuarantine() Quarantine {
	return Quarantine{Charges: 3, Losses: 3, Window: 10 * time.Minute, First: time.Minute, Most: time.Hour, Decay: time.Hour, Share: 0.5}
}

// NoQuarantine disables quarantine except by hand: on a single machine it would only delay.
func NoQuarantine() Quarantine {
	q := defaultQuarantine()
	q.Charges, q.Losses = 0, 0
	return q
}

func (q Quarantine) rules() liveness.Rules {
	return liveness.Rules{Failures: q.Charges, Losses: q.Losses, Window: q.Window, First: q.First, Max: q.Most, Decay: q.Decay, Share: q.Share}
}

func (q Quarantine) validate(fault func(wrong bool, format string, args ...any)) {
	fault(q.Charges < 0, "Quarantine.Charges is %d: 0 or more", q.Charges)
	fault(q.Losses < 0, "Quarantine.Losses is %d: 0 or more", q.Losses)
	fault(!(q.Share >= 0 && q.Share <= 1), "Quarantine.Share is %v: 0 to 1", q.Share)
	fault(q.Decay < 0, "Quarantine.Decay is %s: 0 or more", q.Decay)
	if q.Charges > 0 || q.Losses > 0 {
		fault(q.Window <= 0, "Quarantine.Window is %s: it must be positive", q.Window)
		fault(q.First <= 0, "Quarantine.First is %s: it must be positive", q.First)
		fault(q.Most < q.First, "Quarantine.Most is %s: not less than First, %s", q.Most, q.First)
	}
}
