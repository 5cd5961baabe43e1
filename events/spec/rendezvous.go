package spec

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events/limits"
)

// Rendezvous makes a job external: its nodes register themselves (`regroup agent --join-job`), and
// TorchElastic's rules select the participants. The scheduler ignores such a job. Times have
// TorchElastic's names and defaults.
type Rendezvous struct {
	External       bool      `json:"external"`       // always true; a job without this section is placed by the scheduler
	Nodes          NodeRange `json:"nodes"`          // minimum and maximum number of nodes in a round
	WorkersPerNode int       `json:"workersPerNode"` // the same on every node

	// JoinTimeout is how long a node waits in a round that does not complete; default 10m.
	JoinTimeout Duration `json:"joinTimeout,omitempty"`
	// LastCallTimeout is how long a round with its minimum number of nodes waits for more; default
	// 30s.
	LastCallTimeout Duration `json:"lastCallTimeout,omitempty"`
	// CloseTimeout is how long closing the rendezvous may take before the client gives up; default
	// 30s.
	CloseTimeout Duration `json:"closeTimeout,omitempty"`
	// KeepAliveInterval times KeepAliveMaxAttempt is how long a suspected node stays without a
	// decision of discovery; default 5s.
	KeepAliveInterval   Duration `json:"keepAliveInterval,omitempty"`
	KeepAliveMaxAttempt int      `json:"keepAliveMaxAttempt,omitempty"` // default 3
	// HeartbeatTimeout is the timeout of an agent's request to the rendezvous, which is then
	// repeated; default 5s.
	HeartbeatTimeout Duration `json:"heartbeatTimeout,omitempty"`
}

// NodeRange is a minimum and a maximum.
type NodeRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// External reports whether the job has self-registered nodes.
func (s Job) External() bool { return s.Rendezvous != nil }

// KeepAlive returns how long a suspected node stays in a round without a decision of discovery.
func (r Rendezvous) KeepAlive() time.Duration {
	return r.KeepAliveInterval.D() * time.Duration(r.KeepAliveMaxAttempt)
}

// withDefaults returns a copy with TorchElastic's defaults.
func (r Rendezvous) withDefaults() *Rendezvous {
	fill := func(d *Duration, v time.Duration) {
		if *d == 0 {
			*d = Duration(v)
		}
	}
	fill(&r.JoinTimeout, 600*time.Second)
	fill(&r.LastCallTimeout, 30*time.Second)
	fill(&r.CloseTimeout, 30*time.Second)
	fill(&r.KeepAliveInterval, 5*time.Second)
	fill(&r.HeartbeatTimeout, 5*time.Second)
	if r.KeepAliveMaxAttempt == 0 {
		r.KeepAliveMaxAttempt = 3
	}
	if r.WorkersPerNode == 0 {
		r.WorkersPerNode = 1
	}
	return &r
}

// workers returns the number of workers on all nodes. A product that overflows counts as too large.
func (r Rendezvous) workers() Workers {
	if most := limits.Workers.Max + 1; r.Nodes.Max > most || r.WorkersPerNode > most {
		return Workers{Min: min(r.Nodes.Min, most), Max: most}
	}
	return Workers{Min: r.Nodes.Min * r.WorkersPerNode, Max: r.Nodes.Max * r.WorkersPerNode}
}

func (s Job) checkRendezvous(add func(path, format string, args ...any)) {
	r := s.Rendezvous
	if r == nil {
		return
	}
	if !r.External {
		add("rendezvous.external", "is false: leave rendezvous out, then the scheduler places the job")
	}
	switch {
	case r.Nodes.Min < 1:
		add("rendezvous.nodes.min", "is %d, must be at least 1", r.Nodes.Min)
	case r.Nodes.Max < r.Nodes.Min:
		add("rendezvous.nodes.max", "is %d, must be at least rendezvous.nodes.min (%d)", r.Nodes.Max, r.Nodes.Min)
	}
	switch {
	case r.WorkersPerNode < 1:
		add("rendezvous.workersPerNode", "is %d, must be at least 1", r.WorkersPerNode)
	case r.WorkersPerNode > limits.Slots.Max:
		add("rendezvous.workersPerNode", "is %d, at most %d are allowed (limit %s)", r.WorkersPerNode, limits.Slots.Max, limits.Slots.Name)
	case r.Nodes.Max > limits.Workers.Max/r.WorkersPerNode:
		add("rendezvous.nodes.max", "is %d, with %d workers on each that is more than %d (limit %s)", r.Nodes.Max, r.WorkersPerNode, limits.Workers.Max, limits.Workers.Name)
	}
	if r.KeepAliveMaxAttempt < 1 {
		add("rendezvous.keepAliveMaxAttempt", "is %d, must be at least 1", r.KeepAliveMaxAttempt)
	}
	for _, d := range []struct {
		path  string
		value Duration
	}{
		{"joinTimeout", r.JoinTimeout},
		{"lastCallTimeout", r.LastCallTimeout},
		{"closeTimeout", r.CloseTimeout},
		{"keepAliveInterval", r.KeepAliveInterval},
		{"heartbeatTimeout", r.HeartbeatTimeout},
	} {
		if d.value <= 0 {
			add("rendezvous."+d.path, "is %s, must be more than 0: write 500ms, 30s or 1h", d.value.D())
		}
	}
	if w := r.workers(); r.Nodes.Min > 0 && r.WorkersPerNode > 0 && s.Workers != w {
		add("workers", "is %d:%d, but the nodes of the rendezvous have %d:%d: leave workers out", s.Workers.Min, s.Workers.Max, w.Min, w.Max)
	}
}

// Differs returns the differences between two specs with defaults, or nil: all self-registered
// nodes must have the same job. have is the job's, other the candidate's.
func (s Job) Differs(other Job) []FieldError {
	have, got := s.fields(), other.fields()
	var bad []FieldError
	for i := range have {
		if have[i].value != got[i].value {
			bad = append(bad, FieldError{Path: have[i].path, Message: fmt.Sprintf("is %s here, the job has %s", got[i].value, have[i].value)})
		}
	}
	return bad
}

type field struct{ path, value string }

// fields lists the fields of a job as text for comparison.
func (s Job) fields() []field {
	show := func(v any) string { return fmt.Sprintf("%v", v) }
	number := func(p *int) string {
		if p == nil {
			return "unset"
		}
		return fmt.Sprint(*p)
	}
	var r Rendezvous
	if s.Rendezvous != nil {
		r = *s.Rendezvous
	}
	return []field{
		{"name", show(s.Name)},
		{"command", fmt.Sprintf("%q", s.Command)},
		{"workdir", fmt.Sprintf("%q", s.Workdir)},
		{"env", show(s.Env)},
		{"recovery", show(s.Recovery)},
		{"rendezvous.nodes", fmt.Sprintf("%d:%d", r.Nodes.Min, r.Nodes.Max)},
		{"rendezvous.workersPerNode", show(r.WorkersPerNode)},
		{"rendezvous.joinTimeout", show(r.JoinTimeout.D())},
		{"rendezvous.lastCallTimeout", show(r.LastCallTimeout.D())},
		{"rendezvous.closeTimeout", show(r.CloseTimeout.D())},
		{"rendezvous.keepAliveInterval", show(r.KeepAliveInterval.D())},
		{"rendezvous.keepAliveMaxAttempt", show(r.KeepAliveMaxAttempt)},
		{"rendezvous.heartbeatTimeout", show(r.HeartbeatTimeout.D())},
		{"failures", number(s.Failures.Max) + " in " + show(s.Failures.Per.D()) + ", " + show(s.Failures.SameStep) + " at one step"},
		{"elastic", show([]Duration{s.Elastic.LastCall, s.Elastic.RejoinWithin, s.Elastic.StartWithin, s.Elastic.Settle, s.Elastic.Timeout}) + " " + number(s.Elastic.ResetLimit)},
		{"health", show(s.Health)},
		{"stop", show(s.Stop)},
		{"data", show(s.Data)},
		{"labels", show(s.Labels)},
	}
}
