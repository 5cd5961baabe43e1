package access

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// Subjects of the JetStream API (nats-server, jetstream_api.go) that package jetstream uses. Nobody
// may use the others; among these are those that delete or purge a stream or a message.
const (
	apiStreamInfo     = "$JS.API.STREAM.INFO."
	apiStreamCreate   = "$JS.API.STREAM.CREATE."
	apiStreamUpdate   = "$JS.API.STREAM.UPDATE."
	apiStreamSnapshot = "$JS.API.STREAM.SNAPSHOT."
	apiStreamRestore  = "$JS.API.STREAM.RESTORE."
	apiMessageGet     = "$JS.API.STREAM.MSG.GET."
	apiConsumerCreate = "$JS.API.CONSUMER.CREATE."
	apiConsumerInfo   = "$JS.API.CONSUMER.INFO."
	apiConsumerNext   = "$JS.API.CONSUMER.MSG.NEXT."
	apiConsumerDelete = "$JS.API.CONSUMER.DELETE."
	apiConsumerNames  = "$JS.API.CONSUMER.NAMES."
	apiConsumerList   = "$JS.API.CONSUMER.LIST."
	acknowledge       = "$JS.ACK."
	flowControl       = "$JS.FC."               // the answer to a broker that asks whether to send more
	snapshotAck       = "$JS.SNAPSHOT.ACK."     // of a part of a snapshot
	snapshotPart      = "$JS.SNAPSHOT.RESTORE." // a part of a snapshot that is restored
)

// streams permits to use the streams and buckets of a role.
func (g *grants) streams(r Role) {
	for _, s := range events.Streams() { // every process verifies them at its start
		g.publish(apiStreamInfo + s)
	}
	switch r {
	case RoleAgent:
		g.publish(apiMessageGet + events.StreamLaunches)
	case RoleParticipant: // it consists of others
	case RoleClient, RoleSubmitter, RoleViewer, RoleGateway:
		g.read(events.StreamFacts, events.StreamLogs, events.StreamSpans)
		g.documents()
		g.backlogs()
	case RoleOperator:
		for _, s := range events.Streams() {
			g.publish(apiStreamCreate+s, apiStreamUpdate+s)
			// A server refuses to restore a stream that exists.
			g.publish(apiStreamSnapshot+s, snapshotAck+s+".>", apiStreamRestore+s, snapshotPart+s+".>")
			g.publish(apiConsumerNames+s, apiConsumerList+s, apiConsumerInfo+s+".*", apiConsumerDelete+s+".*")
		}
		g.subscribe(ConsumerAdvisories...)
		g.cleans = true
	default:
		g.service(r)
	}
}

// Where brokers report consumers that are made or deleted, and who has asked the API for what.
const (
	AdvisoryCreated = "$JS.EVENT.ADVISORY.CONSUMER.CREATED.>"
	AdvisoryDeleted = "$JS.EVENT.ADVISORY.CONSUMER.DELETED.>"
	AdvisoryAsked   = "$JS.EVENT.ADVISORY.API"
)

// ConsumerAdvisories are what a process needs that cleans consumers up.
var ConsumerAdvisories = []string{AdvisoryCreated, AdvisoryDeleted, AdvisoryAsked}

// service permits a service to write its bucket, to read all of them, and to consume the streams
// of which it reads an event.
func (g *grants) service(r Role) {
	for _, s := range events.Services() {
		if s.Name != string(r) {
			continue
		}
		g.publish(events.BucketSubject(s.Bucket, ">"))
		g.documents()
		// To find what is published already, of an outbox that a crash has left.
		g.publish(apiMessageGet + events.StreamFacts)
		if slices.Contains(g.permissions.Publish, events.LaunchSubject(AnyNode, "*")) {
			g.publish(apiMessageGet + events.StreamLaunches)
		}
	}
	for _, c := range events.ServiceConsumers() {
		if c.Service == string(r) {
			g.publish(consumer(c.Stream, c.Durable)...)
			g.publish(acknowledge + c.Stream + "." + c.Durable + ".>")
		}
	}
}

// consumer returns the subjects that create and use a consumer; "*" = of any name. A filter may
// follow its name.
func consumer(stream, name string) []string {
	return []string{
		apiConsumerCreate + stream + "." + name, apiConsumerCreate + stream + "." + name + ".>",
		apiConsumerInfo + stream + "." + name, apiConsumerNext + stream + "." + name,
	}
}

// read permits to read streams by consumers of one's own. Nobody may delete one: the broker does
// once nobody asks for its messages.
func (g *grants) read(streams ...string) {
	for _, s := range streams {
		g.publish(apiMessageGet+s, flowControl+s+".>")
		g.publish(consumer(s, "*")...)
	}
	g.ephemeral = append(g.ephemeral, streams...)
}

func (g *grants) documents() {
	for _, s := range events.Services() {
		g.read(events.BucketStream(s.Bucket))
	}
}

// backlogs permits to ask how far the services are in the streams that they consume. Who reads a
// stream may ask about all of its consumers already.
func (g *grants) backlogs() {
	for _, c := range events.ServiceConsumers() {
		if !slices.Contains(g.ephemeral, c.Stream) {
			g.publish(apiConsumerInfo + c.Stream + "." + c.Durable)
		}
	}
}

// protect excludes the consumers of the services from those that others may use. Who reads their
// stream may ask about them, which changes nothing.
func (g *grants) protect(except []Role) {
	for _, c := range events.ServiceConsumers() {
		if slices.Contains(except, Role(c.Service)) {
			continue
		}
		if g.cleans {
			g.permissions.Deny = append(g.permissions.Deny, apiConsumerDelete+c.Stream+"."+c.Durable)
		}
		if slices.Contains(g.ephemeral, c.Stream) {
			g.permissions.Deny = append(g.permissions.Deny, slices.DeleteFunc(consumer(c.Stream, c.Durable), func(subject string) bool {
				return subject == apiConsumerInfo+c.Stream+"."+c.Durable
			})...)
		}
	}
}
