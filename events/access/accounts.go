package access

import (
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
)

// Accounts of those outside: people, gateways, which act for people, and agents. In the account of
// the streams the sender of a request names the subject of the answer, which is a message like any
// other: it can be stored in a stream, or as a document. Between accounts the broker keeps that
// subject to itself, and answers within the account of the sender.
//
// There too an answer can be a request, to what the account imports, whatever the permissions of
// the sender are. So viewers have an account apart from those who may change something, agents one
// apart from those who may command, and none of them imports a request that destroys: its body does
// not count if it is empty.
const (
	AccountClients      = "clients"
	AccountSubmitters   = "submitters"
	AccountViewers      = "viewers"
	AccountAgents       = "agents"
	AccountParticipants = "participants"
)

// OutsideAccounts returns the accounts of those outside.
func OutsideAccounts() []string {
	return append([]string{AccountClients, AccountSubmitters, AccountViewers}, AgentAccounts()...)
}

// AgentAccounts returns the accounts of agents. What they signal to others outside is imported from
// these: a broker does not pass on what an account has imported.
func AgentAccounts() []string { return []string{AccountAgents, AccountParticipants} }

// Account returns the account of a role that is outside; of the others "": they are in that of the
// streams.
func (r Role) Account() string {
	switch r {
	case RoleClient, RoleGateway:
		return AccountClients
	case RoleSubmitter:
		return AccountSubmitters
	case RoleViewer:
		return AccountViewers
	case RoleAgent:
		return AccountAgents
	case RoleParticipant:
		return AccountParticipants
	}
	return ""
}

// Outside reports whether identities of this role are outside the account of the streams.
func (r Role) Outside() bool { return r.Account() != "" }

// Imports are the subjects that accounts of those outside import from the account of the streams,
// sorted. A pattern may include another one.
type Imports struct {
	Services []string // what they may publish, and what they may ask for one answer
	Repeated []string // what they may ask for many answers: the next messages of a consumer
	Streams  []string // what they may subscribe to, and what their consumers deliver
	Signals  []string // those of Streams that agents publish, and those in AgentAccounts export
}

// ImportsOf returns what the roles in some accounts need together. Each of them may use of it what
// its own permissions have.
func ImportsOf(accounts ...string) (Imports, error) {
	all := Imports{Streams: []string{inboxOutside + "*.>"}}
	for _, r := range Roles() {
		if !r.Outside() || !slices.Contains(accounts, r.Account()) {
			continue
		}
		i := Identity{Role: r, Name: placeholder}
		if r.OfNode() {
			i.Node = AnyNode
		}
		p, err := Of(i)
		if err != nil {
			return all, err
		}
		if r == RoleSubmitter { // the one that i is stands for all
			p.Publish = slices.Concat(p.Publish, jobCommands(events.Submitter{Name: "*"}), jobCommands(events.Submitter{Name: "*", User: "*"}))
		}
		for _, s := range p.Publish {
			if strings.HasPrefix(s, apiConsumerNext) {
				all.Repeated = append(all.Repeated, s)
			} else {
				all.Services = append(all.Services, s)
			}
		}
		for _, s := range p.Subscribe {
			if s != i.InboxPrefix()+".>" {
				all.Streams = append(all.Streams, s)
			}
		}
	}
	for _, s := range signals() {
		if slices.Contains(all.Streams, s) {
			all.Signals = append(all.Signals, s)
		}
	}
	for _, list := range []*[]string{&all.Services, &all.Repeated, &all.Streams, &all.Signals} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return all, nil
}
