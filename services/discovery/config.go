package discovery

import (
	"errors"
	"time"

	"github.com/regroup-io/regroup/events"
)

// HeartbeatEvery is how often agents send a heartbeat.
const HeartbeatEvery = 500 * time.Millisecond

// Config is what people may set.
type Config struct {
	// Silence after which a node gets no new work. Too small: a late heartbeat or two empties a
	// healthy node. Too large: new work goes to dead nodes for that long.
	SuspectAfter time.Duration `envconfig:"SUSPECT_AFTER" default:"1.5s" desc:"silence after which a node gets no new work"`
	// Silence after which a node is pinged, and lost if it does not answer. Too small: a broker
	// that dies silently costs its nodes, which need about 1.5 s to notice it and 0.5 s to go
	// elsewhere. Too large: jobs whose peers cannot tell by themselves wait that long.
	LostAfter time.Duration `envconfig:"LOST_AFTER" default:"2s" desc:"silence after which a node is pinged, and lost if it does not answer"`
	// How long a ping may take. Too small: a busy node is lost. Too large: it is added to
	// LostAfter.
	PingTimeout time.Duration `envconfig:"PING_TIMEOUT" default:"500ms" desc:"how long a ping may take"`
	// How long an agent whose connection the broker saw end may take to come back before it is
	// pinged, and lost if it does not answer. Too small: a broken link costs nodes. Too large: jobs
	// whose peers cannot tell by themselves wait that long.
	ReconnectWithin time.Duration `envconfig:"RECONNECT_WITHIN" default:"1s" desc:"how long an agent whose connection has ended may take to come back before it is pinged"`
	// How long a lost or departed node stays on record; 0 = for ever.
	KeepGone time.Duration `envconfig:"KEEP_GONE" default:"24h" desc:"how long a lost or departed node stays on record; 0 = for ever"`

	Quarantine Quarantine `envconfig:"QUARANTINE"`
	HostConfig
}

// DefaultConfig returns what the tags say.
func DefaultConfig() Config {
	return Config{SuspectAfter: 1500 * time.Millisecond, LostAfter: 2 * time.Second, PingTimeout: 500 * time.Millisecond, ReconnectWithin: time.Second, KeepGone: 24 * time.Hour, Quarantine: DefaultQuarantine(), HostConfig: defaultHosts()}
}

// Validate returns everything that is wrong, joined.
func (c Config) Validate() error {
	var bad []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, events.Errorf(events.Invalid, "discovery: "+format, args...))
		}
	}
	fault(c.SuspectAfter < 2*HeartbeatEvery, "SuspectAfter is %s: at least two heartbeats of %s, or every node is suspected", c.SuspectAfter, HeartbeatEvery)
	fault(c.LostAfter < c.SuspectAfter, "LostAfter is %s: not less than SuspectAfter, %s", c.LostAfter, c.SuspectAfter)
	fault(c.PingTimeout <= 0, "PingTimeout is %s: it must be positive", c.PingTimeout)
	fault(c.ReconnectWithin <= 0, "ReconnectWithin is %s: it must be positive", c.ReconnectWithin)
	fault(c.KeepGone < 0, "KeepGone is %s: 0 or more", c.KeepGone)
	c.Quarantine.validate(fault)
	c.HostConfig.validate(fault)
	return errors.Join(bad...)
}
