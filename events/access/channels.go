package access

import (
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/usage"
)

// channel is a kind of messages that is not in the catalogue of events.
type channel struct {
	what     string
	subjects func(node ident.NodeID) []string // node = the node that a message is about, or from
	from, to []Role                           // who publishes, and who subscribes
	answered bool                             // it is a request, which is answered wherever it says
}

func roles(r ...Role) []Role { return r }

func services() []Role {
	var all []Role
	for _, s := range events.ServiceNames() {
		all = append(all, Role(s))
	}
	return all
}

// BrokersAlive is where every broker says that it is there, besides its connections of the account
// of who asks (nats-server, events.go).
const BrokersAlive = "$SYS.REQ.ACCOUNT.PING.STATZ"

// readers are the roles that read what has happened.
var readers = roles(RoleClient, RoleSubmitter, RoleViewer)

// channels returns the signals, requests, launches, logs and spans.
func channels() []channel {
	const (
		disc, rdzv, reg = Role(events.ServiceDiscovery), Role(events.ServiceRendezvous), Role(events.ServiceRegistry)
		agent           = RoleAgent
	)
	one := func(subject string) func(ident.NodeID) []string {
		return func(ident.NodeID) []string { return []string{subject} }
	}
	of := func(subject func(ident.NodeID) string) func(ident.NodeID) []string {
		return func(n ident.NodeID) []string { return []string{subject(n)} }
	}
	request := func(service Role, from []Role, verbs ...string) channel {
		return channel{"requests to " + string(service), func(ident.NodeID) (all []string) {
			for _, v := range verbs {
				all = append(all, events.RequestSubject(string(service), v))
			}
			return all
		}, from, roles(service), true}
	}
	all := []channel{
		{"launches", of(func(n ident.NodeID) string { return events.LaunchSubject(n, "*") }), roles(rdzv), roles(agent), false},
		{"output of workers", of(func(n ident.NodeID) string { return events.LogSubject("*", string(n), "*") }), roles(agent), nil, false},
		{"heartbeats", of(events.HeartbeatSubject), roles(agent), roles(disc, rdzv), false},
		{"notices of failures", one(events.AllNotices), roles(agent, rdzv), roles(agent, rdzv), false},
		{"progress", one(events.AllProgress), roles(agent), append(roles(reg, RoleGateway), readers...), false},
		{"what nodes use", of(usage.Subject), roles(agent), roles(RoleGateway), false},
		{"status of a rendezvous", one(events.RendezvousStatusSubject("*")), roles(rdzv), roles(RoleParticipant), false},
		{"which brokers are there", one(BrokersAlive), roles(disc), nil, false},
		{"pings", of(func(n ident.NodeID) string { return events.AgentSubject(n, events.VerbPing) }), roles(disc), roles(agent), false},
		{"answers of agents", of(func(n ident.NodeID) string { return events.AnswerSubject(n, "*") }), roles(agent), roles(disc), false},
		request(disc, roles(agent), events.VerbJoin, events.VerbLeave),
		request(disc, roles(agent, disc), events.VerbRenew), // discovery asks itself, to prove that it hears
		request(rdzv, roles(agent), events.VerbJoin, events.VerbJoins, events.VerbPeers),
		{"joins to one replica", one(events.ReplicaSubject(string(rdzv), events.VerbJoins, "*")), roles(agent), roles(rdzv), true},
		request(rdzv, roles(RoleParticipant), events.VerbEnter, events.VerbExit),
		request(rdzv, roles(RoleClient), events.VerbClose),
		request(reg, readers, events.VerbProgress),
		{"spans of agents", func(ident.NodeID) []string {
			return []string{events.SpanSubject(events.ServiceAgent), events.SpanSubject("worker")}
		}, roles(agent), nil, false},
		{"spans of gateways", one(events.SpanSubject(events.ServiceGateway)), roles(RoleGateway), nil, false},
		{"spans of services", one(events.SpanSubject("*")), services(), nil, false}, // one service may record the span of another
	}
	for _, s := range services() {
		all = append(all, request(s, append(roles(RoleGateway), readers...), events.VerbAlive))
	}
	return all
}

// signals returns the subjects on which agents publish to those outside who are no agents.
func signals() (all []string) {
	for _, c := range channels() {
		outside := func(r Role) bool { return r.Outside() && !slices.Contains(c.from, r) }
		if slices.Contains(c.from, RoleAgent) && slices.ContainsFunc(c.to, outside) {
			all = append(all, c.subjects(AnyNode)...)
		}
	}
	return all
}

// channels permits to use the channels of a role. An agent uses those of its node; others those of
// all nodes.
func (g *grants) channels(r Role) {
	node := AnyNode
	if r == RoleAgent || r == RoleParticipant {
		node = g.node
	}
	for _, c := range channels() {
		if slices.Contains(c.from, r) {
			g.publish(c.subjects(node)...)
		}
		if slices.Contains(c.to, r) {
			g.subscribe(c.subjects(node)...)
			g.permissions.Responses = g.permissions.Responses || c.answered
		}
	}
}
