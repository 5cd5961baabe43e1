package events

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
)

// Class is how a message is transported.
type Class string

// Classes in the catalogue.
const (
	ClassFact    Class = "fact"
	ClassCommand Class = "command"
)

// Entry is one row of the catalogue.
type Entry struct {
	Type    Type
	Class   Class
	Writer  string   // the only service that may write it ("client" for commands)
	Readers []string // services that have a case for it
	Since   string
	What    string // one line
	New     func() Body
}

func entry[B Body](class Class, writer string, readers []string, what string) Entry {
	var zero B
	return Entry{
		Type: zero.Type(), Class: class, Writer: writer, Readers: readers, Since: "0.1", What: what,
		New: func() Body { var b B; return b },
	}
}

func to(services ...string) []string { return services }

// Catalog returns all facts and commands, in the order of a job's life cycle. Docs, permissions and
// tests are generated from it.
func Catalog() []Entry {
	const (
		disc, sched, rdzv, reg, agent = ServiceDiscovery, ServiceScheduler, ServiceRendezvous, ServiceRegistry, ServiceAgent
	)
	return []Entry{
		entry[JobSubmit](ClassCommand, "client", to(reg), "run this job"),
		entry[JobScale](ClassCommand, "client", to(reg), "change the wanted number of workers"),
		entry[JobStop](ClassCommand, "client", to(reg), "end this job"),
		entry[JobRemove](ClassCommand, "client", to(reg), "remove the record of this ended job"),
		entry[NodeDrain](ClassCommand, "client", to(disc), "give this node no more work and move its work away"),
		entry[NodeQuarantine](ClassCommand, "client", to(disc), "quarantine a node or a slot for a time"),
		entry[NodeRelease](ClassCommand, "client", to(disc), "end the quarantine of a node or a slot"),

		entry[JobSubmitted](ClassFact, reg, to(sched, rdzv), "a job was accepted"),
		entry[JobRejected](ClassFact, reg, nil, "a command was refused, with every reason"),
		entry[JobScaled](ClassFact, reg, to(sched), "the wanted number of workers changed"),
		entry[JobFailureCounted](ClassFact, reg, to(disc), "a failure of a worker incarnation was counted"),
		entry[JobStalled](ClassFact, reg, to(rdzv), "no worker made a step within the job's limit"),
		entry[JobProgressed](ClassFact, reg, nil, "the newest step of a job and the values that its program has reported"),
		entry[JobRespawned](ClassFact, reg, to(rdzv), "a dead worker is started again"),
		entry[JobDelayed](ClassFact, reg, nil, "a worker that died soon after its start is started again, but not at once"),
		entry[JobRespawnDenied](ClassFact, reg, to(rdzv), "a dead worker is not started again"),
		entry[JobFinishing](ClassFact, reg, to(rdzv), "a worker has completed the training"),
		entry[JobStopping](ClassFact, reg, to(rdzv), "a stop was requested"),
		entry[JobSucceeded](ClassFact, reg, to(sched, rdzv), "the job ended successfully"),
		entry[JobFailed](ClassFact, reg, to(sched, rdzv), "the job failed"),
		entry[JobStopped](ClassFact, reg, to(sched, rdzv), "the job was stopped on request"),
		entry[JobRemoved](ClassFact, reg, to(sched, rdzv), "the record of an ended job was removed"),

		entry[PlacementSet](ClassFact, sched, to(rdzv, reg), "the places of a job"),
		entry[PlacementWaiting](ClassFact, sched, to(reg), "why a job cannot be placed now"),
		entry[PlacementReleased](ClassFact, sched, nil, "an ended job's places are free"),

		entry[RoundOpened](ClassFact, rdzv, to(reg), "a round for a new generation was opened"),
		entry[RoundMissed](ClassFact, rdzv, to(reg), "members that have not rejoined while a round cannot be sealed"),
		entry[RoundDelayed](ClassFact, rdzv, nil, "the next generation waits, because several in a row were lost without progress"),
		entry[RoundSealed](ClassFact, rdzv, to(reg), "the members of a generation with their ranks"),
		entry[RoundParticipantsSet](ClassFact, rdzv, to(reg), "the self-registered nodes that participate, and thereby the places of a job"),
		entry[RoundClosed](ClassFact, rdzv, nil, "the rendezvous of a job is over"),

		entry[WorkerStarted](ClassFact, agent, to(reg), "a process was started"),
		entry[WorkerReady](ClassFact, agent, to(reg, rdzv), "a worker made its first good step in a generation; without the SDK: its process runs, and again with its first reported step"),
		entry[WorkerHashed](ClassFact, agent, to(reg), "a worker has hashed the state of the training"),
		entry[WorkerDone](ClassFact, agent, to(reg), "a worker reports its work complete"),
		entry[WorkerExited](ClassFact, agent, to(reg, rdzv), "the end of a process"),

		entry[IncidentOpened](ClassFact, reg, to(sched), "a fault or a resize broke a generation"),
		entry[IncidentClosed](ClassFact, reg, to(sched), "the job makes steps again, or its processes run if they report no steps; with phases"),

		entry[NodeJoined](ClassFact, disc, to(sched, rdzv, reg), "an agent joined, or returned"),
		entry[NodeSuspected](ClassFact, disc, to(sched, rdzv), "a node is silent, or its agent's connection has closed"),
		entry[NodeRecovered](ClassFact, disc, to(sched, rdzv), "a suspected node was heard again"),
		entry[NodeLost](ClassFact, disc, to(sched, rdzv, reg), "a node is gone with its workers"),
		entry[NodeLeft](ClassFact, disc, to(sched, rdzv, reg), "an agent said goodbye"),
		entry[NodeDraining](ClassFact, disc, to(sched, rdzv), "a node gives its work away"),
		entry[NodeQuarantined](ClassFact, disc, to(sched), "a node or a slot is quarantined for a cool-down"),
		entry[NodeReleased](ClassFact, disc, to(sched), "the quarantine of a node or a slot is over"),
		entry[NodeChanged](ClassFact, disc, to(sched), "the usable slots of a node in the host list have changed"),
		entry[NodeRejected](ClassFact, disc, nil, "a command about a node was refused, with every reason"),
	}
}

// ServiceSource returns the CloudEvents source of the facts of a service.
func ServiceSource(service string) string { return "/regroup/" + service }

// OfCluster reports whether a source is one of a service or an agent, from which no command comes.
func OfCluster(source string) bool { return strings.HasPrefix(source+"/", "/regroup/") }

// AgentSource returns the CloudEvents source of the facts of an agent.
func AgentSource(n ident.NodeID, i ident.Incarnation) string {
	return ServiceSource(ServiceAgent) + "/" + string(n) + "/" + string(i)
}

// WrittenBy reports whether a source is that of the writer of a fact.
func (e Entry) WrittenBy(source string) bool {
	if e.Writer == ServiceAgent {
		return strings.HasPrefix(source, ServiceSource(ServiceAgent)+"/")
	}
	return source == ServiceSource(e.Writer)
}

// entries are the rows of the catalogue by their types: each event that is read asks for its own.
var entries = sync.OnceValue(func() map[Type]Entry {
	rows := map[Type]Entry{}
	for _, e := range Catalog() {
		rows[e.Type] = e
	}
	return rows
})

// EntryOf returns the catalogue's row for a type.
func EntryOf(t Type) (Entry, bool) {
	e, ok := entries()[t]
	return e, ok
}

// Type returns the type of the command. The types of facts and commands are defined only here.
func (JobSubmit) Type() Type            { return "dev.regroup.job.submit.v1" }
func (JobScale) Type() Type             { return "dev.regroup.job.scale.v1" }
func (JobStop) Type() Type              { return "dev.regroup.job.stop.v1" }
func (JobRemove) Type() Type            { return "dev.regroup.job.remove.v1" }
func (NodeDrain) Type() Type            { return "dev.regroup.node.drain.v1" }
func (NodeQuarantine) Type() Type       { return "dev.regroup.node.quarantine.v1" }
func (NodeRelease) Type() Type          { return "dev.regroup.node.release.v1" }
func (JobSubmitted) Type() Type         { return "dev.regroup.job.submitted.v1" }
func (JobRejected) Type() Type          { return "dev.regroup.job.rejected.v1" }
func (JobScaled) Type() Type            { return "dev.regroup.job.scaled.v1" }
func (JobStalled) Type() Type           { return "dev.regroup.job.stalled.v1" }
func (JobProgressed) Type() Type        { return "dev.regroup.job.progressed.v1" }
func (JobRespawned) Type() Type         { return "dev.regroup.job.respawned.v1" }
func (JobDelayed) Type() Type           { return "dev.regroup.job.delayed.v1" }
func (JobRespawnDenied) Type() Type     { return "dev.regroup.job.respawn-denied.v1" }
func (JobFailureCounted) Type() Type    { return "dev.regroup.job.failure-counted.v1" }
func (JobFinishing) Type() Type         { return "dev.regroup.job.finishing.v1" }
func (JobStopping) Type() Type          { return "dev.regroup.job.stopping.v1" }
func (JobSucceeded) Type() Type         { return "dev.regroup.job.succeeded.v1" }
func (JobFailed) Type() Type            { return "dev.regroup.job.failed.v1" }
func (JobStopped) Type() Type           { return "dev.regroup.job.stopped.v1" }
func (JobRemoved) Type() Type           { return "dev.regroup.job.removed.v1" }
func (PlacementSet) Type() Type         { return "dev.regroup.placement.set.v1" }
func (PlacementWaiting) Type() Type     { return "dev.regroup.placement.waiting.v1" }
func (PlacementReleased) Type() Type    { return "dev.regroup.placement.released.v1" }
func (RoundOpened) Type() Type          { return "dev.regroup.round.opened.v1" }
func (RoundMissed) Type() Type          { return "dev.regroup.round.missed.v1" }
func (RoundDelayed) Type() Type         { return "dev.regroup.round.delayed.v1" }
func (RoundSealed) Type() Type          { return "dev.regroup.round.sealed.v1" }
func (RoundParticipantsSet) Type() Type { return "dev.regroup.round.participants-set.v1" }
func (RoundClosed) Type() Type          { return "dev.regroup.round.closed.v1" }
func (WorkerStarted) Type() Type        { return "dev.regroup.worker.started.v1" }
func (WorkerReady) Type() Type          { return "dev.regroup.worker.ready.v1" }
func (WorkerHashed) Type() Type         { return "dev.regroup.worker.hashed.v1" }
func (WorkerDone) Type() Type           { return "dev.regroup.worker.done.v1" }
func (WorkerExited) Type() Type         { return "dev.regroup.worker.exited.v1" }
func (IncidentOpened) Type() Type       { return "dev.regroup.incident.opened.v1" }
func (IncidentClosed) Type() Type       { return "dev.regroup.incident.closed.v1" }
func (NodeJoined) Type() Type           { return "dev.regroup.node.joined.v1" }
func (NodeSuspected) Type() Type        { return "dev.regroup.node.suspected.v1" }
func (NodeRecovered) Type() Type        { return "dev.regroup.node.recovered.v1" }
func (NodeLost) Type() Type             { return "dev.regroup.node.lost.v1" }
func (NodeLeft) Type() Type             { return "dev.regroup.node.left.v1" }
func (NodeDraining) Type() Type         { return "dev.regroup.node.draining.v1" }
func (NodeQuarantined) Type() Type      { return "dev.regroup.node.quarantined.v1" }
func (NodeReleased) Type() Type         { return "dev.regroup.node.released.v1" }
func (NodeChanged) Type() Type          { return "dev.regroup.node.changed.v1" }
func (NodeRejected) Type() Type         { return "dev.regroup.node.rejected.v1" }

// CatalogMarkdown renders the catalogue for docs/events.md: one table per class and family.
func CatalogMarkdown() string {
	var b strings.Builder
	b.WriteString("# Events\n\nGenerated from the catalogue in `events/catalog.go`. Every message is a CloudEvent 1.0, in binary mode as we write it;\nboth modes are read. The data is JSON; fields may be added, never changed: another meaning is another type.\n")
	b.WriteString(longLists)
	rows := Catalog()
	for _, class := range []struct {
		class Class
		title string
		intro string
	}{
		{ClassCommand, "Commands", "Sent by clients to the stream `" + StreamCommands + "`, answered by facts. Those of a [submitter](security.md#submitters) `ada` are on the subject with `.by.ada` at its end. Data of at most " + fmt.Sprint(limits.Command.Max>>10) + " KiB. One with the\nCloudEvents extension `expirytime` is refused, with a fact, when it comes to its service after that time by the clock of the broker (`ts` of `STREAM.INFO`)."},
		{ClassFact, "Facts", "What has happened, on the stream `" + StreamFacts + "`. Each type has one writer."},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", class.title, class.intro)
		done := map[Family]bool{}
		for _, r := range rows {
			if f := r.Type.Family(); r.Class == class.class && !done[f] {
				done[f] = true
				familyTable(&b, rows, class.class, f)
			}
		}
	}
	return b.String()
}

func familyTable(b *strings.Builder, rows []Entry, class Class, f Family) {
	fmt.Fprintf(b, "\n### %s\n\n| type | what | subject | writer | readers | since |\n|---|---|---|---|---|---|\n", f)
	for _, r := range rows {
		if r.Class != class || r.Type.Family() != f {
			continue
		}
		subject := CommandSubject(r.Type)
		if class == ClassFact {
			subject = FactSubject(r.Type, entityWord(f))
		}
		readers := "clients"
		if len(r.Readers) > 0 {
			readers = strings.Join(r.Readers, ", ")
		}
		fmt.Fprintf(b, "| `%s` | %s | `%s` | %s | %s | %s |\n", r.Type, r.What, subject, r.Writer, readers, r.Since)
	}
}

func entityWord(f Family) string {
	if f == FamilyNode {
		return "<node>"
	}
	return "<job>"
}

const longLists = `
## Long lists

A job may have tens of thousands of workers, so lists of them are short.

- Places (` + "`placement.set`, `round.opened`" + `): one text for the slots of a node, in order: ` + "`[\"node-a/0-7\", \"node-b/0,2\"]`" + `.
- Members (` + "`round.sealed`" + `), in order of rank: a list for each field, ` + "`places`, `agents`, `workers` (their incarnations), `attempts`, `pids`, `addresses`, `commits`" + `.
  Texts are one text with spaces between them (` + "`%20`" + ` is a space in one, ` + "`%25`" + ` a percent sign, ` + "`%`" + ` alone an empty text); one value alone stands for all members; what is
  absent is zero or empty; of ` + "`agents`" + ` the i-th value is that of the next ` + "`counts[i]`" + ` members. Ranks count up, local ranks within a node; a cross rank counts the nodes
  before that have this local rank too. Where ranks do not follow from the order, the members are a list of objects with ` + "`place`, `rank`" + ` and the rest.
- Data of more than ` + "128 KiB" + ` is compressed; the NATS header ` + "`Content-Encoding: gzip`" + ` says so.
`

// ErrUnknownType marks an event whose type is not in the catalogue, perhaps of a newer client.
var ErrUnknownType = errors.New("event type is not in the catalogue")
