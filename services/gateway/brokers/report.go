// Package brokers makes of what the brokers say about themselves what people read: who takes part,
// how far the copies of the streams are, what the services have still to handle, and what of it
// needs attention.
package brokers

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/broker"
)

// Report is one observation.
type Report struct {
	At        time.Time            `json:"at,omitzero"`         // zero = nothing was observed yet
	Connected string               `json:"connected,omitempty"` // the broker of this process's connection; empty = none
	Brokers   []Broker             `json:"brokers"`             // those that have a copy of a stream, by name
	Streams   []broker.StreamState `json:"streams"`
	Findings  []Finding            `json:"findings"` // what needs attention
}

// Broker is what the streams' leaders know of one broker. One that has no copy is unknown to them.
type Broker struct {
	Broker     string   `json:"broker"`
	State      State    `json:"state"`
	Leads      int      `json:"leads"`       // streams
	Copies     int      `json:"copies"`      // of streams, those that it leads included
	NotCurrent int      `json:"not_current"` // copies
	Offline    bool     `json:"offline"`     // as a leader says that it does not lead
	Lag        uint64   `json:"lag"`         // of the copy that is the most behind
	LagOf      string   `json:"lag_of,omitempty"`
	SeenMS     *float64 `json:"seen_ms"` // since a leader heard it; null = never; 0 = it leads a stream, and answered
}

// State is the worst of what is said about a broker.
type State string

// States of brokers.
const (
	StateCurrent State = "current" // its copies have everything
	StateBehind  State = "behind"  // one of them does not: normal for moments, while it is written
	StateSilent  State = "silent"  // no leader has heard it for SilentAfter
	StateOffline State = "offline" // a leader has been told that it has ended
)

func (b Broker) state() State {
	switch {
	case b.Offline:
		return StateOffline
	case b.SeenMS == nil || *b.SeenMS >= float64(SilentAfter.Milliseconds()):
		return StateSilent
	case b.NotCurrent > 0:
		return StateBehind
	}
	return StateCurrent
}

// Finding is something that needs attention.
type Finding struct {
	Key      string    `json:"key"`      // the same as long as it lasts
	Severity string    `json:"severity"` // error, warning or notice
	Text     string    `json:"text"`
	Since    time.Time `json:"since,omitzero"` // first observed
}

// byBroker collects what the streams' leaders say about each broker.
func byBroker(streams []broker.StreamState) []Broker {
	all := map[string]*Broker{}
	for _, s := range streams {
		for _, r := range s.Replicas {
			b := all[r.Broker]
			if b == nil {
				b = &Broker{Broker: r.Broker}
				all[r.Broker] = b
			}
			b.Copies++
			b.Offline = b.Offline || r.Offline
			if !r.Current {
				b.NotCurrent++
			}
			if r.Lag > b.Lag {
				b.Lag, b.LagOf = r.Lag, s.Stream
			}
			seen := r.SeenMS
			if r.Leader {
				b.Leads++
				seen = new(float64)
			}
			if seen != nil && (b.SeenMS == nil || *seen < *b.SeenMS) {
				b.SeenMS = seen
			}
		}
	}
	out := make([]Broker, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := *all[name]
		b.State = b.state()
		out = append(out, b)
	}
	return out
}

// Backlogs returns the consumers of all streams, the one with the most to do first.
func (r Report) Backlogs() []Backlog {
	var all []Backlog
	for _, s := range r.Streams {
		for _, c := range s.Consumers {
			all = append(all, Backlog{s.Stream, c})
		}
	}
	slices.SortStableFunc(all, func(a, b Backlog) int { return cmp.Compare(b.Backlog(), a.Backlog()) })
	return all
}

// Backlog is a consumer with its stream.
type Backlog struct {
	Stream string
	broker.ConsumerState
}
