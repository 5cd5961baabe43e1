package brokers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/internal/english"
)

// What needs attention.
const (
	// MaxLag is how many messages a copy may lack.
	MaxLag = 1000
	// SilentAfter is how long no leader may hear a broker, which answers every second.
	SilentAfter = 10 * time.Second
	// CurrentWithin is how long a copy may be not current: any is for moments, while it grows.
	CurrentWithin = 10 * time.Second
	// NearlyFull is the part of its limit that a stream may use if it refuses messages once it is
	// full. That others drop their oldest is normal.
	NearlyFull = 0.8
	// GrowsFor and MinBacklog: a backlog of so many messages grows if it was larger than at first,
	// and never smaller than in the observation before, for so long.
	GrowsFor   = 30 * time.Second
	MinBacklog = 100

	// maxGap is how long after an observation the next one continues it.
	maxGap = 30 * time.Second
)

// Observer observes again and again. It is of one goroutine.
type Observer struct {
	ask    broker.Brokers
	before time.Time            // of the observation before
	since  map[string]time.Time // when a condition was first observed, by key
	grows  map[string]growth    // of consumers
}

// growth is a time in which a backlog was never smaller than in the observation before.
type growth struct {
	since       time.Time
	first, last uint64
}

// NewObserver returns an observer that has observed nothing.
func NewObserver(ask broker.Brokers) *Observer {
	return &Observer{ask: ask, since: map[string]time.Time{}, grows: map[string]growth{}}
}

// Observe asks the brokers, within a limit of a few seconds. now is the time of a clock that is the
// same for all observations.
func (o *Observer) Observe(ctx context.Context, now func() time.Time) Report {
	r := Report{Connected: o.ask.Connected(), Streams: o.ask.Streams(ctx)}
	r.At = now()
	if r.At.Sub(o.before) > maxGap {
		clear(o.since)
		clear(o.grows)
	}
	o.before = r.At
	r.Brokers = byBroker(r.Streams)
	f := findings{observer: o, at: r.At, held: map[string]bool{}, all: []Finding{}}
	f.unknown(r.Streams)
	f.copies(r)
	f.streams(r.Streams)
	for key := range o.since {
		if !f.held[key] {
			delete(o.since, key)
		}
	}
	r.Findings = f.all
	return r
}

// findings are collected in one observation.
type findings struct {
	observer *Observer
	at       time.Time
	held     map[string]bool // conditions that were observed now
	all      []Finding
}

// lasts notes that a condition was observed, and returns since when.
func (f *findings) lasts(key string) time.Time {
	f.held[key] = true
	if _, known := f.observer.since[key]; !known {
		f.observer.since[key] = f.at
	}
	return f.observer.since[key]
}

func (f *findings) add(key, severity, format string, args ...any) {
	f.all = append(f.all, Finding{Key: key, Severity: severity, Text: fmt.Sprintf(format, args...), Since: f.lasts(key)})
}

// unknown finds what was not answered.
func (f *findings) unknown(streams []broker.StreamState) {
	var names, consumers []string
	var reason, refused string
	for _, s := range streams {
		if s.Unknown != "" {
			names, reason = append(names, s.Stream), s.Unknown
		}
		for _, c := range s.Consumers {
			if c.Unknown != "" {
				consumers, refused = append(consumers, c.Consumer), c.Unknown
			}
		}
	}
	switch {
	case len(names) == len(streams):
		f.add("unknown", "error", "no broker answers for a stream: %s", reason)
	case len(names) > 0:
		f.add("unknown", "error", "no broker answers for %s: %s", strings.Join(names, ", "), reason)
	}
	if len(consumers) > 0 {
		f.add("unknown backlogs", "notice", "what %s have to handle is unknown: %s", strings.Join(consumers, ", "), refused)
	}
}

// copies finds brokers whose copies are not kept up.
func (f *findings) copies(r Report) {
	for _, b := range r.Brokers {
		var late []string
		for _, s := range r.Streams {
			i := slices.IndexFunc(s.Replicas, func(c broker.ReplicaState) bool { return c.Broker == b.Broker })
			if i < 0 || s.Replicas[i].Current {
				continue
			}
			if f.at.Sub(f.lasts("not current "+b.Broker+" "+s.Stream)) >= CurrentWithin {
				late = append(late, s.Stream)
			}
		}
		behind := ""
		if b.Lag > 0 {
			behind = fmt.Sprintf("; the one of %s lacks %s", b.LagOf, english.Plural(b.Lag, "message"))
		}
		switch {
		case b.State == StateSilent && b.SeenMS != nil:
			heard := time.Duration(*b.SeenMS) * time.Millisecond
			f.add("silent "+b.Broker, "warning", "broker %s was not heard for %s: its copies of streams (%d) are not kept up%s", b.Broker, heard.Round(time.Second), b.Copies, behind)
		case b.State == StateSilent:
			f.add("silent "+b.Broker, "warning", "broker %s was never heard: its copies of streams (%d) are not kept up", b.Broker, b.Copies)
		case b.Offline:
			f.add("offline "+b.Broker, "warning", "broker %s is offline: its copies of streams (%d) are not kept up%s", b.Broker, b.Copies, behind)
		case b.Lag > MaxLag:
			f.add("behind "+b.Broker, "warning", "broker %s is behind: its copy of %s lacks %s", b.Broker, b.LagOf, english.Plural(b.Lag, "message"))
		case len(late) > 0:
			f.add("late "+b.Broker, "warning", "broker %s has copies that are not current: %s%s", b.Broker, strings.Join(late, ", "), behind)
		}
	}
}

// streams finds streams that are nearly full, and services that fall behind.
func (f *findings) streams(all []broker.StreamState) {
	seen := map[string]bool{}
	for _, s := range all {
		if part := s.Full(); s.Refuses && part >= NearlyFull {
			f.add("full "+s.Stream, "warning", "stream %s is %.0f %% full: once it is, it refuses what is new", s.Stream, 100*part)
		}
		for _, c := range s.Consumers {
			key := "grows " + s.Stream + " " + c.Consumer
			if c.Unknown != "" {
				continue
			}
			seen[key] = true
			g, known := f.observer.grows[key]
			if n := c.Backlog(); !known || n < g.last || n == 0 {
				g = growth{f.at, n, n}
			} else {
				g.last = n
			}
			f.observer.grows[key] = g
			if took := f.at.Sub(g.since); g.last >= MinBacklog && g.last > g.first && took >= GrowsFor {
				f.add(key, "warning", "%s falls behind: %d messages of %s wait for it, %d more than %s ago", c.Service, g.last, s.Stream, g.last-g.first, took.Round(time.Second))
			}
		}
	}
	for key := range f.observer.grows {
		if !seen[key] {
			delete(f.observer.grows, key)
		}
	}
}
