package spec

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/limits"
)

// Rendezvous lets the nodes of a job register themselves (`regroup agent --join-job`).
// TorchElastic's rules select the participants, and the scheduler ignores the job. Times have
// TorchElastic's names and defaults.
type Rendezvous struct {
	Nodes NodeRange `json:"nodes" required:"true"`
	// Workers on each node.
	WorkersPerNode int `json:"workersPerNode" default:"1" min:"1" max:"slots"`
	// How long a node waits in a round that does not complete.
	JoinTimeout Duration `json:"joinTimeout,omitempty" default:"10m"`
	// How long a round with its minimum number of nodes waits for more.
	LastCallTimeout Duration `json:"lastCallTimeout,omitempty" default:"30s"`
	// Timeout of closing the rendezvous.
	CloseTimeout Duration `json:"closeTimeout,omitempty" default:"30s"`
	// This times `keepAliveMaxAttempt` is how long a suspected node stays without a decision of
	// discovery.
	KeepAliveInterval Duration `json:"keepAliveInterval,omitempty" default:"5s"`
	// See `keepAliveInterval`.
	KeepAliveMaxAttempt int `json:"keepAliveMaxAttempt,omitempty" default:"3" min:"1"`
	// Timeout of an agent's request to the rendezvous, which is then repeated.
	HeartbeatTimeout Duration `json:"heartbeatTimeout,omitempty" default:"5s"`
}

// NodeRange is a minimum and a maximum.
type NodeRange struct {
	// Minimum number of nodes in a round.
	Min int `json:"min" required:"true" min:"1"`
	// Maximum number of nodes in a round, at least `min`; times `workersPerNode` at most 100000.
	Max int `json:"max" required:"true"`
}

// SelfRegistered reports whether the job has self-registered nodes.
func (s Job) SelfRegistered() bool { return s.Rendezvous != nil }

// KeepAlive returns how long a suspected node stays in a round without a decision of discovery.
func (r Rendezvous) KeepAlive() time.Duration {
	return r.KeepAliveInterval.D() * time.Duration(r.KeepAliveMaxAttempt)
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
	if r.Nodes.Min > 0 && r.Nodes.Max < r.Nodes.Min {
		add("rendezvous.nodes.max", "is %d, must be at least rendezvous.nodes.min (%d)", r.Nodes.Max, r.Nodes.Min)
	}
	if each := r.WorkersPerNode; each > 0 && each <= limits.Slots.Max && r.Nodes.Max > limits.Workers.Max/each {
		add("rendezvous.nodes.max", "is %d, with %d workers on each that is more than %d (limit %s)", r.Nodes.Max, each, limits.Workers.Max, limits.Workers.Name)
	}
	if w := r.workers(); r.Nodes.Min > 0 && r.WorkersPerNode > 0 && s.Workers != w {
		add("workers", "is %d:%d, but the nodes of the rendezvous have %d:%d: leave workers out", s.Workers.Min, s.Workers.Max, w.Min, w.Max)
	}
}

// Differs returns the differences between two specs with defaults, or nil: all self-registered
// nodes must have the same job. other is the candidate's. The workers follow from the nodes.
func (s Job) Differs(other Job) []FieldError {
	var bad []FieldError
	for i := range rules {
		r := &rules[i]
		have, got := show(r.value(&s)), show(r.value(&other))
		if got != have && !strings.HasPrefix(r.path, "workers.") {
			bad = append(bad, FieldError{Path: r.path, Message: fmt.Sprintf("is %s here, the job has %s", got, have)})
		}
	}
	return bad
}

// show returns a field as text for comparison; one that is absent or empty is none.
func show(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch k := v.Kind(); {
	case k == reflect.Invalid, (k == reflect.Slice || k == reflect.Map) && v.Len() == 0:
		return "none"
	case k == reflect.String, k == reflect.Slice, k == reflect.Map:
		return fmt.Sprintf("%q", v)
	case v.Type() == durationType:
		return v.Interface().(Duration).D().String()
	}
	return fmt.Sprint(v)
}
