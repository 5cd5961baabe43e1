package access

import (
	"fmt"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Amounts are how much an identity may have at a broker at the same time. 0 = as much as there is.
type Amounts struct {
	Connections   int // of the identity
	Subscriptions int // of each connection
	Payload       int // bytes of each message
	Consumers     int // of the identity, in all streams
	Bytes         int // published by the identity in each second, after BurstOfBytes at once
}

// MaxMessage is the size in bytes of the largest message that brokers take.
const MaxMessage = 1 << 20

// Limits of accounts, and of what is in the streams.
const (
	// ConnectionsOfAccount are those of all identities in an account of people together.
	ConnectionsOfAccount = 1024
	// ConsumersOfStream are those of everybody on one stream.
	ConsumersOfStream = 2048
	// ConsumersUnasked is how many consumers there may be before brokers ask whose they are.
	ConsumersUnasked = 256
	// Pending is how many bytes a broker keeps for a connection that does not read them.
	Pending = 8 << 20
	// ClosedConnections is how many closed connections a broker remembers.
	ClosedConnections = 1024
	// Unstored is how many bytes of messages that are published to a stream may wait for the disk.
	Unstored = 16 << 20
	// BytesEach is the share of an identity of what is published: Amounts.Bytes. Agents send no
	// more than half of that as output of workers.
	BytesEach = 4 << 20
	// BurstOfBytes is what an identity may publish at once, like output that has waited.
	BurstOfBytes = 32 << 20
	// LookedAtBytes is how much all together publish before a broker looks who it was.
	LookedAtBytes = BytesEach
)

// LockedOutFor is how long an identity may not connect that has published more than its share.
const LockedOutFor = time.Minute

// UnusedFor is how long a consumer of a stream is kept that nobody uses. That of a service is kept
// for as long as the messages that it has not seen.
func UnusedFor(stream string) time.Duration {
	if stream == events.StreamFacts || stream == events.StreamCommands {
		return 7 * 24 * time.Hour
	}
	return time.Hour
}

// Amounts returns how much the identity may have. Services, the operator and a process with
// everything in it have no limits: the cluster consists of them.
func (i Identity) Amounts() Amounts {
	a := Amounts{Payload: MaxMessage}
	switch i.Role {
	case RoleViewer, RoleSubmitter:
		a.Connections, a.Subscriptions, a.Consumers, a.Bytes = 8, 64, 64, BytesEach
	case RoleClient:
		a.Connections, a.Subscriptions, a.Consumers, a.Bytes = 16, 256, 128, BytesEach
	case RoleGateway: // all replicas are one identity, and each stream of HTTP may have a consumer
		a.Connections, a.Subscriptions, a.Consumers = 64, 8192, 0
	case RoleAgent, RoleParticipant:
		a.Connections, a.Subscriptions, a.Bytes = 8, 64, BytesEach
		if i.Role == RoleParticipant {
			a.Consumers = 64
		}
		if i.Node == AnyNode { // one identity for all nodes
			a.Connections, a.Consumers, a.Bytes = 0, 0, 0
		}
	default:
		return Amounts{}
	}
	if i.Role == RoleViewer {
		a.Payload = 64 << 10
	}
	return a
}

// Counted reports whether requests on a subject make consumers, of which an identity has a share.
func Counted(subject string) bool { return strings.HasPrefix(subject, apiConsumerCreate) }

// AmountsHeader is the first line of the table of amounts that Markdown returns.
const AmountsHeader = "| role | connections | subscriptions of each | bytes of a message | bytes published in a second | consumers |\n"

// amounts renders the amounts of all roles.
func amounts() string {
	var b strings.Builder
	b.WriteString(AmountsHeader + "|---|---|---|---|---|---|\n")
	most := func(n int) string {
		if n == 0 {
			return "any"
		}
		return fmt.Sprint(n)
	}
	row := func(name string, i Identity) {
		a := i.Amounts()
		consumers := most(a.Consumers)
		if i.Role == RoleAgent {
			consumers = "none"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, most(a.Connections), most(a.Subscriptions), most(a.Payload), most(a.Bytes), consumers)
	}
	for _, r := range Roles() {
		i := Identity{Role: r, Name: placeholder}
		if r.OfNode() {
			i.Node = placeholder
		}
		row(string(r), i)
		if i.Node = AnyNode; r.OfNode() {
			row(string(r)+" of any node", i)
		}
	}
	return b.String()
}

// amount says how much of a subject may be used, beside the size of each message.
func amount(subject string) string {
	rest, ok := strings.CutPrefix(subject, apiConsumerCreate)
	if !ok {
		return ""
	}
	stream, _, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("%d on the stream; unused for %s", ConsumersOfStream, strings.TrimSuffix(strings.TrimSuffix(UnusedFor(stream).String(), "0s"), "0m"))
}
