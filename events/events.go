// Package events is the vocabulary of Regroup: everything that can be said between its processes,
// and the ports through which it is said.
//
// There are five classes of message. A fact is something that happened: durable, past tense, one
// writer per kind. A command is asked of the system by a client: durable, answered by a fact. A
// request is asked of a service and answered once, over core messaging. A signal may be lost and
// nothing may depend on any single one arriving. A launch tells one node what it must run for one
// job; the last one is kept.
//
// Facts and commands travel as CloudEvents 1.0. Names of subjects, streams, buckets and headers are
// spelt in subjects.go, event types in catalog.go, and nowhere else in the tree.
package events

import (
	"strings"
	"time"
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

// Kind returns the last word of the type: exited of dev.regroup.worker.exited.v1.
func (t Type) Kind() string {
	_, k, _ := strings.Cut(t.middle(), ".")
	return k
}

// Body is the content of a message: a closed sum, listed in the catalogue.
type Body interface{ Type() Type }

// Event is a fact or a command with its envelope. On the wire it is a CloudEvent 1.0 (package
// cloudevent).
type Event struct {
	ID     string    // unique per source
	Source string    // who says it: /regroup/<service> or /regroup/agent/<node>/<incarnation>, or a client's own
	Entity string    // job id or node id; CloudEvents subject
	Number uint64    // facts of judges: position in the entity's facts of this family, from 1; 0 = unnumbered
	Time   time.Time // the speaker's clock; never compared with another host's
	Cause  string    // id of the event that led to this one; extension causationid
	Trace  string    // W3C traceparent of the trace in which it was born; extension traceparent
	Body   Body

	// Expires is the time, by the clock of the store, after which a command must not be carried out
	// any more; extension expirytime. Zero = never. Facts have none.
	Expires time.Time
}

// Input is one thing a machine is asked to take into account. Exactly one body; the zero ID means
// that it need not be remembered (signals and ticks).
type Input struct {
	ID      string    // de-duplication key: source and id of an event, id of a request
	Source  string    // as in Event
	Number  uint64    // as in Event
	Time    time.Time // as in Event, of a signal when it was heard, zero = not known: only for windows of minutes, which a difference of clocks does not spoil
	Trace   string    // W3C traceparent of the hop that brought it
	Expired bool      // a command that came after it had expired: it is taken in only if it was before
	Nonce   string    // a fresh ULID given by the host: the machine's only randomness
	Body    Body
}

// Tick asks a machine to look at its whole state because its deadline has come.
type Tick struct{}

// Type makes Tick a Body.
func (Tick) Type() Type { return "dev.regroup.loop.tick.v1" }

// Decision is what a Step says besides the new state.
type Decision struct {
	Facts        []Fact   // to tell, in order; they leave after the state is stored
	Launches     []Launch // to keep, one per node; Revision is filled in by the host
	Hints        []Signal // lossy hints, sent after the state is stored
	Spans        []Span   // what to draw in the trace, recorded once the state is stored
	Reply        Body     // answer to a request
	Refusal      error    // a coded "no" with its reason; facts may still be told (rejected)
	Forget       bool     // the entity has ended and its document may be removed
	ResetApplied bool     // nothing that was taken in before matters any more: the ids of those inputs need not be remembered
}

// Fact is a body to be told about an entity.
type Fact struct {
	Body   Body   `json:"-"`
	Entity string `json:"entity,omitempty"` // empty = the machine's own entity
	Cause  string `json:"cause,omitempty"`
	Trace  string `json:"trace,omitempty"` // traceparent; empty = that of the input
}

// Span is a finished piece of work to be drawn in a trace.
type Span struct {
	Service    string            `json:"service"`          // agent, registry, scheduler, rendezvous, worker ...
	Name       string            `json:"name"`             // short: "process worker.exited"
	Parent     string            `json:"parent,omitempty"` // traceparent of the parent span; empty = new trace
	Self       string            `json:"self,omitempty"`   // fixed traceparent of this span; empty = made by the recorder
	Start      time.Time         `json:"start"`
	End        time.Time         `json:"end"`
	Error      string            `json:"error,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Links      []string          `json:"links,omitempty"` // traceparents of spans in other traces that belong to it
}

// TraceOf returns the traceparent of the root span of the incident that ended generation g of a
// job. Every process derives the same one without asking, so that the first to see a fault and the
// last to recover draw one trace.
func TraceOf(job JobID, g Generation) string {
	sum := Token("incident", string(job), g.String())
	span := Token("incident-root", string(job), g.String())
	return "00-" + sum + "-" + span[:16] + "-01"
}

// JobTrace returns the traceparent of the root span of a job's start: submit to the first good
// step.
func JobTrace(job JobID) string {
	return "00-" + Token("job", string(job)) + "-" + Token("job-root", string(job))[:16] + "-01"
}

// NodeTrace returns the traceparent of discovery's verdict that one life of a node's agent is lost.
// Its node may have worked for several jobs, or for none.
func NodeTrace(node NodeID, life Incarnation) string {
	return "00-" + Token("node", string(node), string(life)) + "-" + Token("node-root", string(node), string(life))[:16] + "-01"
}

// OwnTrace returns a traceparent unless it is that of a job's start, which clients may derive: then
// it is nobody's own.
func OwnTrace(traceparent string, job JobID) string {
	if !ValidTrace(traceparent) || TraceID(traceparent) == TraceID(JobTrace(job)) {
		return ""
	}
	return traceparent
}

// ChildTrace returns the traceparent of a span inside the trace of parent, derived from the words.
func ChildTrace(parent string, words ...string) string {
	p := strings.Split(parent, "-")
	if len(p) != 4 {
		return ""
	}
	return "00-" + p[1] + "-" + Token(append([]string{parent}, words...)...)[:16] + "-" + p[3]
}

// TraceID returns the trace id inside a traceparent, or "".
func TraceID(traceparent string) string {
	p := strings.Split(traceparent, "-")
	if len(p) != 4 {
		return ""
	}
	return p[1]
}

// ValidTrace tells whether s is a traceparent of W3C Trace Context level 1.
func ValidTrace(s string) bool {
	if len(s) != 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' || s[:2] == "ff" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && c != '-' {
			return false
		}
	}
	return strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != "" && strings.Count(s, "-") == 3
}
