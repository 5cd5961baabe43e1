// Package events is the catalogue of the messages of Regroup: what can happen, who writes it, and
// where it is published.
//
// There are five classes of message. A fact records something that has happened: durable, in the
// past tense, with one writer per kind. A command is a client's request to the system: durable,
// answered by a fact. A request is sent to a service and answered once, over core NATS. A signal
// may be lost, and nothing may depend on a single one. A launch contains what one node must run for
// one job; the last one is kept.
//
// Facts and commands are CloudEvents 1.0. Names of subjects, streams, buckets and headers are
// defined only in subjects.go, event types only in catalog.go.
package events

import (
	"reflect"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// Type is a CloudEvents type: dev.regroup.<family>.<kind>.v1.
type Type string

const typePrefix = "dev.regroup."

// middle returns family.kind: the type without prefix and version.
func (t Type) middle() string {
	s := strings.TrimPrefix(string(t), typePrefix)
	if i := strings.LastIndex(s, ".v"); i >= 0 {
		s = s[:i]
	}
	return s
}

// Family returns the family of the type.
func (t Type) Family() Family {
	f, _, _ := strings.Cut(t.middle(), ".")
	return Family(f)
}

// Kind returns the last word of the type, such as exited of dev.regroup.worker.exited.v1.
func (t Type) Kind() string {
	_, k, _ := strings.Cut(t.middle(), ".")
	return k
}

// Body is the content of a message: a closed sum, listed in the catalogue.
type Body interface{ Type() Type }

// Event is a fact or a command with its envelope; package cloudevent has its wire form.
type Event struct {
	ID     string    // unique per source
	Source string    // the writer: /regroup/<service> or /regroup/agent/<node>/<incarnation>, or a client's own
	Entity string    // job id or node id; CloudEvents subject
	Number uint64    // facts of services: position in the entity's facts of this family, from 1; 0 = unnumbered
	Time   time.Time // the writer's clock; never compared with another host's
	Cause  string    // id of the event that led to this one; extension causationid
	Trace  string    // W3C traceparent of the trace in which it originated; extension traceparent
	Body   Body

	// Expires is the time, by the clock of the broker, after which a command must not be carried
	// out; extension expirytime. Zero = never. Facts have none.
	Expires time.Time
}

// Input is one input of a machine. It has exactly one body. The zero ID means that it is not
// recorded (signals and ticks).
type Input struct {
	ID     string // de-duplication key: source and id of an event, id of a request
	Source string // as in Event
	Number uint64 // as in Event
	// As in Event; of a signal the time of arrival; zero = unknown. Only for windows of minutes,
	// for which the difference of clocks is irrelevant.
	Time time.Time
	// Stored is when the broker stored the event, by its clock, which is the same for the events of
	// all hosts; zero = it does not come from a stream.
	Stored  time.Time
	Trace   string // W3C traceparent of the hop that delivered it
	Expired bool   // a command that arrived after it had expired: it is accepted only as a repeat of one applied before
	Nonce   string // a fresh ULID from the controller: the machine's only randomness
	// Others returns what the replica knows of the other entities of its service at this input, in
	// a type of the service; nil = nothing.
	Others func() any
	Body   Body
}

// Earliest returns the earliest of several times; those that are zero do not count.
func Earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Tick makes a machine examine its whole state because its deadline has come.
type Tick struct{}

// Type makes Tick a Body.
func (Tick) Type() Type { return "dev.regroup.loop.tick.v1" }

// Decision is the result of a Step besides the new state.
type Decision struct {
	Facts        []Fact   // to be published in order, after the state is stored
	Launches     []Launch // to be kept, one per node; the controller sets Revision
	Hints        []Signal // signals that may be lost, sent after the state is stored
	Spans        []Span   // to be recorded after the state is stored
	Reply        Body     // answer to a request
	Refusal      error    // a refusal with code and reason; facts may still be published (rejected)
	Forget       bool     // the entity has ended and its document may be removed
	ResetApplied bool     // no earlier input matters any more: the recorded input ids may be dropped
}

// Fact is a body to be published about an entity.
type Fact struct {
	Body   Body   `json:"-"`
	Entity string `json:"entity,omitempty"` // empty = the machine's own entity
	Cause  string `json:"cause,omitempty"`
	Trace  string `json:"trace,omitempty"` // traceparent; empty = that of the input
}

// Span is a finished span of a trace.
type Span struct {
	Service    string            `json:"service"`          // agent, registry, scheduler, rendezvous, worker ...
	Name       string            `json:"name"`             // short: "process worker.exited"
	Parent     string            `json:"parent,omitempty"` // traceparent of the parent span; empty = new trace
	Self       string            `json:"self,omitempty"`   // fixed traceparent of this span; empty = set by the recorder
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Links      []string          `json:"links,omitempty"` // traceparents of related spans in other traces
}

// About returns the entity of a fact by its body: a node, or a job. Empty = it does not say.
func About(b Body) string {
	if b.Type().Family() == FamilyNode {
		n, _ := NodeOf(b)
		return string(n)
	}
	id, _ := JobOf(b)
	return string(id)
}

// JobOf returns the job that a body is about: its field Job. ok is false if it has none.
func JobOf(b Body) (id ident.JobID, ok bool) { return field[ident.JobID](b, "Job") }

// NodeOf returns the node that a body is about: its field Node. ok is false if it has none.
func NodeOf(b Body) (id ident.NodeID, ok bool) { return field[ident.NodeID](b, "Node") }

// field returns a field of a body, which may be one of an embedded struct.
func field[T any](b Body, name string) (value T, ok bool) {
	v := reflect.ValueOf(b)
	if v.Kind() != reflect.Struct {
		return value, false // the body of a malformed event is nil
	}
	if f := v.FieldByName(name); f.IsValid() {
		value, ok = f.Interface().(T)
	}
	return value, ok
}
