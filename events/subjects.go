package events

import (
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Streams. Retention and limits are in the jetstream package's topology.
const (
	StreamCommands = "REGROUP_CMD"
	StreamFacts    = "REGROUP_EVT"
	StreamLaunches = "REGROUP_LAUNCH"
	StreamLogs     = "REGROUP_LOG"
	StreamSpans    = "REGROUP_SPAN"
)

// Buckets: one per service, which is its only writer.
const (
	BucketNodes      = "nodes"      // discovery: one document per node
	BucketPlacements = "placements" // scheduler: one document, key PoolKey
	BucketRounds     = "rounds"     // rendezvous: one document per job
	BucketJobs       = "jobs"       // registry: one document per job
)

// PoolKey is the key of the scheduler's only document.
const PoolKey = "default"

// Headers of a stored or sent message.
const (
	HeaderTrace     = "traceparent"        // W3C trace context of this hop
	HeaderErrorCode = "Regroup-Error-Code" // on replies: the Code
	HeaderErrorText = "Regroup-Error"      // on replies: the text
)

// Family groups facts by their entity and writer.
type Family string

// Families of facts. The entity of job, placement, round, worker and incident facts is the job id;
// of node facts the node id.
const (
	FamilyJob       Family = "job"
	FamilyPlacement Family = "placement"
	FamilyRound     Family = "round"
	FamilyWorker    Family = "worker"
	FamilyNode      Family = "node"
	FamilyIncident  Family = "incident"
)

const root = "regroup."

// Wildcards for consumers and topology.
const (
	AllCommands     = root + "cmd.>"
	AllJobCommands  = root + "cmd.job.>"
	AllNodeCommands = root + "cmd.node.>"
	AllFacts        = root + "evt.>"
	AllLaunches     = root + "launch.>"
	AllLogs         = root + "log.>"
	AllSpans        = root + "span.>"
	AllHeartbeats   = root + "sig.heartbeat.*"
	AllNotices      = root + "sig.notice.*"
	AllProgress     = root + "sig.progress.*"
)

// CommandSubject returns the subject of commands of this type: regroup.cmd.job.submit.
func CommandSubject(t Type) string { return root + "cmd." + t.middle() }

// Submitter is a client that submits jobs, and changes those that it has submitted. Both parts are
// in the subject and the source of its commands: the broker lets nobody else publish on that
// subject, and commands whose subject and source differ are refused.
type Submitter struct {
	Name string
	User string // as whom all its jobs run, like spec.Processes.User; empty = as they say
}

const (
	submitterSource = "/submitter/"
	submitterUser   = "/as/"
	submitterWord   = ".by."
	userWord        = ".as."
	escapedDot      = "%2E"
)

// Source returns the CloudEvents source of the submitter's commands: /submitter/ada, or
// /submitter/ada/as/training if its jobs run as that user.
func (s Submitter) Source() string {
	if s.User == "" {
		return submitterSource + s.Name
	}
	return submitterSource + s.Name + submitterUser + s.User
}

// SubmitterOf returns the submitter with this source; false if it is no source of one.
func SubmitterOf(source string) (Submitter, bool) {
	rest, ok := strings.CutPrefix(source, submitterSource)
	name, user, named := strings.Cut(rest, submitterUser)
	s := Submitter{name, user}
	return s, ok && s.Check() == nil && named == (user != "")
}

// Check validates the submitter: Invalid, with the field and what it may be.
func (s Submitter) Check() error {
	if ident.NodeID(s.Name).Check() != nil {
		return errcode.Errorf(errcode.Invalid, "name %q: use a-z, 0-9 and '-', at most 63 of them", s.Name)
	}
	if wrong := spec.CheckUser(s.User); wrong != nil {
		return errcode.Errorf(errcode.Invalid, "user %s", wrong.Message)
	}
	return nil
}

// Subject returns the subject of the submitter's commands of this type:
// regroup.cmd.job.submit.by.ada, or regroup.cmd.job.submit.by.ada.as.training.
func (s Submitter) Subject(t Type) string {
	subject := CommandSubject(t) + submitterWord + s.Name
	if s.User != "" {
		subject += userWord + strings.ReplaceAll(s.User, ".", escapedDot) // it is one token
	}
	return subject
}

// SubmitterAt returns the submitter whose commands of this type are published on a subject.
func SubmitterAt(t Type, subject string) (Submitter, bool) {
	rest, ok := strings.CutPrefix(subject, CommandSubject(t)+submitterWord)
	name, user, _ := strings.Cut(rest, userWord)
	s := Submitter{name, strings.ReplaceAll(user, escapedDot, ".")}
	return s, ok && s.Check() == nil && s.Subject(t) == subject
}

// Subject returns where the event is published.
func (e Event) Subject() string {
	t := e.Body.Type()
	if row, _ := EntryOf(t); row.Class == ClassFact {
		return FactSubject(t, e.Entity)
	}
	if s, ok := SubmitterOf(e.Source); ok {
		return s.Subject(t)
	}
	return CommandSubject(t)
}

// FactSubject returns the subject of facts of this type about entity:
// regroup.evt.job.<entity>.submitted.
func FactSubject(t Type, entity string) string {
	family, kind, _ := strings.Cut(t.middle(), ".")
	return root + "evt." + family + "." + entity + "." + kind
}

// FamilySubject returns the pattern of all facts of a family; entity "*" matches all.
func FamilySubject(f Family, entity string) string {
	return root + "evt." + string(f) + "." + entity + ".>"
}

// EntityOfFact returns the entity token of a fact's subject, or "".
func EntityOfFact(subject string) string {
	parts := strings.Split(subject, ".")
	if len(parts) < 5 || parts[0]+"."+parts[1] != root+"evt" {
		return ""
	}
	return parts[3]
}

// LaunchSubject returns the subject of the launch of a job for a node; job "*" matches all jobs.
func LaunchSubject(node ident.NodeID, job ident.JobID) string {
	return root + "launch." + string(node) + "." + string(job)
}

// LogSubject returns the subject of a worker slot's output; node and slot may be "*".
func LogSubject(job ident.JobID, node, slot string) string {
	return root + "log." + string(job) + "." + node + "." + slot
}

// SpanSubject returns the subject of a service's spans.
func SpanSubject(service string) string { return root + "span." + service }

// RequestSubject returns the subject of a verb of a service: regroup.req.rendezvous.join.
func RequestSubject(service, verb string) string { return root + "req." + service + "." + verb }

// ReplicaSubject returns the subject of a verb of one replica:
// regroup.req.rendezvous.joins.<replica>.
func ReplicaSubject(service, verb, replica string) string {
	return RequestSubject(service, verb) + "." + replica
}

// AgentSubject returns the subject of a verb of one node's agent: regroup.req.agent.<node>.ping.
func AgentSubject(node ident.NodeID, verb string) string {
	return root + "req.agent." + string(node) + "." + verb
}

// AnswerSubject returns where the agent of a node answers a request; token is the request's. If a
// broker let agents answer wherever they are asked to, one could ask itself and publish anywhere.
func AnswerSubject(node ident.NodeID, token string) string {
	return "_ANSWER." + string(node) + "." + token
}

// AskedAgent returns the node whose agent answers requests on a subject.
func AskedAgent(subject string) (ident.NodeID, bool) {
	rest, ok := strings.CutPrefix(subject, root+"req.agent.")
	node, _, _ := strings.Cut(rest, ".")
	return ident.NodeID(node), ok
}

// HeartbeatSubject returns the subject of a node's heartbeats.
func HeartbeatSubject(n ident.NodeID) string { return root + "sig.heartbeat." + string(n) }

// NoticeSubject returns the subject of a job's failure notices.
func NoticeSubject(j ident.JobID) string { return root + "sig.notice." + string(j) }

// ProgressSubject returns the subject of a job's progress.
func ProgressSubject(j ident.JobID) string { return root + "sig.progress." + string(j) }

// RendezvousStatusSubject returns the subject of the status of a job's rendezvous.
func RendezvousStatusSubject(j ident.JobID) string {
	return root + "sig.rendezvous-status." + string(j)
}

// Services, as they appear in request subjects, sources and span resources.
const (
	ServiceDiscovery  = "discovery"
	ServiceScheduler  = "scheduler"
	ServiceRendezvous = "rendezvous"
	ServiceRegistry   = "registry"
	ServiceAgent      = "agent"
	ServiceGateway    = "gateway" // a client of the others, with spans of its own
)

// Service is a service of the control plane.
type Service struct {
	Name   string
	Bucket string // where its documents are; no other service writes there
}

// Services returns the services in the order of the control flow. Streams, processes and queries
// are set up from this list.
func Services() []Service {
	return []Service{
		{ServiceDiscovery, BucketNodes},
		{ServiceScheduler, BucketPlacements},
		{ServiceRendezvous, BucketRounds},
		{ServiceRegistry, BucketJobs},
	}
}

// Durables returns the names of the durable consumers that the service may have on a stream. No
// other client may use them.
func (s Service) Durables() []string { return []string{s.Name, s.Name + "-cmd", s.Name + "-evt"} }

// Consumes returns the streams on which the service has consumers, of the events that it reads.
func (s Service) Consumes() []string {
	var all []string
	for _, row := range Catalog() {
		stream := StreamFacts
		if row.Class == ClassCommand {
			stream = StreamCommands
		}
		if slices.Contains(row.Readers, s.Name) && !slices.Contains(all, stream) {
			all = append(all, stream)
		}
	}
	return all
}

// ServiceConsumer is a durable consumer that a service may have on a stream that it consumes.
type ServiceConsumer struct{ Service, Stream, Durable string }

// ServiceConsumers returns the consumers of all services.
func ServiceConsumers() (all []ServiceConsumer) {
	for _, s := range Services() {
		for _, stream := range s.Consumes() {
			for _, d := range s.Durables() {
				all = append(all, ServiceConsumer{s.Name, stream, d})
			}
		}
	}
	return all
}

// Streams returns the names of all streams, those of buckets included.
func Streams() []string {
	all := []string{StreamCommands, StreamFacts, StreamLaunches, StreamLogs, StreamSpans}
	for _, s := range Services() {
		all = append(all, BucketStream(s.Bucket))
	}
	return all
}

// BucketStream returns the name of the stream in which NATS keeps a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// BucketSubject returns the subject of a bucket's key; ">" matches all keys.
func BucketSubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// Reserved reports whether a subject is one of Regroup's own, or of the broker's: none on which
// anybody waits for a reply.
func Reserved(subject string) bool {
	return strings.HasPrefix(subject, root) || strings.HasPrefix(subject, "$")
}

// Match reports whether a subject matches a pattern with * (one token) and > (the rest).
func Match(pattern, subject string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		if p == ">" {
			return subject != ""
		}
		s, restS, moreS := strings.Cut(subject, ".")
		if p != s && p != "*" || moreP != moreS {
			return false
		}
		if !moreP {
			return true
		}
		pattern, subject = restP, restS
	}
}

// MatchAny reports whether one of the patterns matches a subject.
func MatchAny(patterns []string, subject string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Match(p, subject) })
}

// ServiceNames returns the names of Services.
func ServiceNames() []string {
	var names []string
	for _, s := range Services() {
		names = append(names, s.Name)
	}
	return names
}

// Verbs of requests.
const (
	VerbJoin     = "join"     // discovery: a node; rendezvous: a member
	VerbJoins    = "joins"    // rendezvous: several members of one node
	VerbLeave    = "leave"    // discovery: goodbye of a node
	VerbRenew    = "renew"    // discovery: the lease of a node
	VerbPeers    = "peers"    // rendezvous: data-plane addresses of ranks
	VerbEnter    = "enter"    // rendezvous: a self-registered node
	VerbExit     = "exit"     // rendezvous: goodbye of such a node
	VerbClose    = "close"    // rendezvous: admit no more of them
	VerbPing     = "ping"     // agent: is it alive?
	VerbAlive    = "alive"    // every service: is a replica running?
	VerbProgress = "progress" // registry: progress of jobs, from memory
)
