package brokers_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/services/gateway/brokers"
)

// printed is what the brokers say in a test, in which the test sets the time.
type printed struct {
	streams  []broker.StreamState
	now      time.Time
	observer *brokers.Observer
}

// Connected implements broker.Brokers.
func (s *printed) Connected() string { return "n0" }

// Streams implements broker.Brokers.
func (s *printed) Streams(context.Context) []broker.StreamState { return s.streams }

// say begins with a cluster of three brokers in which all is well.
func say() *printed {
	s := &printed{now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	seen := 200.0
	for i, name := range []string{events.StreamCommands, events.StreamFacts} {
		leader := fmt.Sprint("n", i)
		stream := broker.StreamState{
			Stream: name, Leader: leader, Messages: 7, Bytes: 700, MaxBytes: 1000, Refuses: name == events.StreamCommands,
			Replicas: []broker.ReplicaState{{Broker: leader, Leader: true, Current: true}}, Consumers: []broker.ConsumerState{{Consumer: "registry-evt", Service: "registry"}},
		}
		for _, other := range []string{"n0", "n1", "n2"} {
			if other != leader {
				stream.Replicas = append(stream.Replicas, broker.ReplicaState{Broker: other, Current: true, SeenMS: &seen})
			}
		}
		s.streams = append(s.streams, stream)
	}
	s.observer = brokers.NewObserver(s)
	return s
}

// report is the report of an observation so much later.
func (s *printed) report(later time.Duration) brokers.Report {
	s.now = s.now.Add(later)
	return s.observer.Observe(context.Background(), func() time.Time { return s.now })
}

// found returns what needs attention.
func (s *printed) found(later time.Duration) string {
	var all []string
	for _, f := range s.report(later).Findings {
		all = append(all, f.Severity+": "+f.Text)
	}
	return strings.Join(all, "\n")
}

// copyOf is what the leader of the facts says about its copy at n2.
func (s *printed) copyOf() *broker.ReplicaState { return &s.streams[1].Replicas[2] }

// hear sets when the leaders have heard n2.
func (s *printed) hear(ago time.Duration) {
	ms := float64(ago.Milliseconds())
	for i := range s.streams {
		c := &s.streams[i].Replicas[2]
		c.SeenMS, c.Current = &ms, false
	}
	s.copyOf().Lag = 4
}

func TestWhoTakesPart(t *testing.T) {
	s := say()
	s.copyOf().Lag, s.copyOf().Current = 12, false
	r := s.report(0)
	if len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
	for i, want := range []brokers.Broker{
		{Broker: "n0", State: brokers.StateCurrent, Leads: 1, Copies: 2, SeenMS: new(float64)},
		{Broker: "n1", State: brokers.StateCurrent, Leads: 1, Copies: 2, SeenMS: new(float64)},
		{Broker: "n2", State: brokers.StateBehind, Copies: 2, NotCurrent: 1, Lag: 12, LagOf: events.StreamFacts, SeenMS: s.copyOf().SeenMS},
	} {
		got := r.Brokers[i]
		if got.SeenMS == nil || *got.SeenMS != *want.SeenMS {
			t.Errorf("%s was heard %v ago, want %v", want.Broker, got.SeenMS, *want.SeenMS)
		}
		if got.SeenMS = want.SeenMS; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestFindings has each rule at its bound.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*printed)
		want   string
	}{
		"offline":       {func(s *printed) { *s.copyOf() = broker.ReplicaState{Broker: "n2", Offline: true, Lag: 3} }, "warning: broker n2 is offline: its copies of streams (2) are not kept up; the one of REGROUP_EVT lacks 3 messages"},
		"silent":        {func(s *printed) { s.hear(49 * time.Second) }, "warning: broker n2 was not heard for 49s: its copies of streams (2) are not kept up; the one of REGROUP_EVT lacks 4 messages"},
		"nearly silent": {func(s *printed) { s.hear(brokers.SilentAfter - time.Millisecond) }, ""},
		"lag":           {func(s *printed) { s.copyOf().Lag = brokers.MaxLag + 1 }, "warning: broker n2 is behind: its copy of REGROUP_EVT lacks 1001 messages"},
		"no lag":        {func(s *printed) { s.copyOf().Lag = brokers.MaxLag }, ""},
		"full":          {func(s *printed) { s.streams[0].Bytes = 800 }, "warning: stream REGROUP_CMD is 80 % full: once it is, it refuses what is new"},
		"not so full, and one that drops its oldest": {func(s *printed) { s.streams[0].Bytes, s.streams[1].Bytes = 799, 1000 }, ""},
		"one stream is unknown":                      {func(s *printed) { s.streams[1] = broker.StreamState{Stream: events.StreamFacts, Unknown: "no answer"} }, "error: no broker answers for REGROUP_EVT: no answer"},
		"all are": {func(s *printed) {
			for i := range s.streams {
				s.streams[i] = broker.StreamState{Stream: s.streams[i].Stream, Unknown: "no answer"}
			}
		}, "error: no broker answers for a stream: no answer"},
		"an unknown backlog": {func(s *printed) { s.streams[1].Consumers[0].Unknown = "it may not" }, "notice: what registry-evt have to handle is unknown: it may not"},
	} {
		t.Run(name, func(t *testing.T) {
			s := say()
			c.change(s)
			if got := s.found(0); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestNotCurrentForLong: a copy that is written to is not current for moments.
func TestNotCurrentForLong(t *testing.T) {
	s := say()
	s.copyOf().Current = false
	for i, want := range []string{"", "", "warning: broker n2 has copies that are not current: REGROUP_EVT"} {
		if got := s.found(5 * time.Second); got != want {
			t.Errorf("observation %d: %q, want %q", i, got, want)
		}
	}
	s.copyOf().Current = true
	s.found(5 * time.Second)
	s.copyOf().Current = false
	if got := s.found(5 * time.Second); got != "" {
		t.Errorf("after a time in which it was current: %q", got)
	}
	if got := s.found(time.Minute); got != "" {
		t.Errorf("after a time in which nobody looked: %q", got)
	}
}

// TestABacklogThatGrows is found after 30 s in which it never fell, and not while it is short, or
// as high as it was.
func TestABacklogThatGrows(t *testing.T) {
	for name, c := range map[string]struct {
		backlog []uint64 // every 10 s
		want    string
	}{
		"grows": {[]uint64{90, 100, 100, 150}, "warning: registry falls behind: 150 messages of REGROUP_EVT wait for it, 60 more than 30s ago"},
		"short": {[]uint64{0, 10, 20, 30}, ""},
		"falls": {[]uint64{90, 200, 199, 300}, ""},
		"high":  {[]uint64{500, 500, 500, 500}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, last := say(), ""
			for i, n := range c.backlog {
				k := &s.streams[1].Consumers[0]
				k.Pending, k.AckPending = n-n/10, n/10
				if last = s.found(10 * time.Second); last != "" && i+1 < len(c.backlog) {
					t.Errorf("after %d observations: %q", i+1, last)
				}
			}
			if last != c.want {
				t.Errorf("%q, want %q", last, c.want)
			}
		})
	}
}

// TestSince is when a condition was first observed.
func TestSince(t *testing.T) {
	s := say()
	s.copyOf().Offline = true
	began := s.report(0).At
	if f := s.report(5 * time.Second).Findings; len(f) != 1 || !f[0].Since.Equal(began) {
		t.Errorf("%+v, want it since %s", f, began)
	}
}

// TestCollector: what is unknown has no series.
func TestCollector(t *testing.T) {
	s := say()
	s.streams[0] = broker.StreamState{Stream: events.StreamCommands, Unknown: "no answer"}
	*s.copyOf() = broker.ReplicaState{Broker: "n2", Current: true, Offline: true, Lag: 3}
	s.streams[1].Consumers[0].Pending = 9
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(brokers.Collector(func() brokers.Report { return s.report(0) }))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += " " + l.GetValue()
			}
			all = append(all, fmt.Sprint(f.GetName(), labels, " ", m.GetGauge().GetValue()))
		}
	}
	for _, want := range []string{
		"regroup_stream_replica_lag_messages n2 REGROUP_EVT 3", "regroup_stream_replica_current n2 REGROUP_EVT 0", "regroup_stream_replica_current n1 REGROUP_EVT 1",
		"regroup_stream_bytes REGROUP_EVT 700", "regroup_stream_limit_bytes REGROUP_EVT 1000", "regroup_consumer_pending registry-evt REGROUP_EVT 9",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	if text := strings.Join(all, "\n"); strings.Contains(text, events.StreamCommands) {
		t.Errorf("a stream of which nothing is known has series: %s", text)
	}
}
