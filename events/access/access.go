// Package access says who may do what on the broker: the subjects that each role may publish and
// subscribe to. They are computed from the catalogue of events, the list of services and the
// functions for subjects.
package access

import (
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// Role is what an identity is for. Each service has the role of its name.
type Role string

// Roles other than those of the services.
const (
	RoleAgent       Role = events.ServiceAgent // the agent of one node
	RoleParticipant Role = "participant"       // such an agent that also creates, or joins, its job: agent --join-job, torchrun
	RoleClient      Role = "client"            // submits, changes and follows jobs and nodes
	RoleSubmitter   Role = "submitter"         // submits jobs, changes those that it has submitted, and reads
	RoleViewer      Role = "viewer"            // only reads
	RoleGateway     Role = "gateway"           // commands, facts and output for the clients of HTTP
	RoleOperator    Role = "operator"          // makes, copies and restores the streams: regroup init, backup, restore
	RoleAll         Role = "all"               // a process with everything in it: regroup up
)

// AnyNode is the node of an identity that may be the agent of any node.
const AnyNode ident.NodeID = "*"

// Roles returns all roles.
func Roles() []Role {
	var all []Role
	for _, s := range events.ServiceNames() {
		all = append(all, Role(s))
	}
	return append(all, RoleAgent, RoleParticipant, RoleClient, RoleSubmitter, RoleViewer, RoleGateway, RoleOperator, RoleAll)
}

// OfNode reports whether an identity of this role belongs to one node.
func (r Role) OfNode() bool { return r == RoleAgent || r == RoleParticipant }

// parts returns the roles that a role consists of, itself included.
func (r Role) parts() []Role {
	switch r {
	case RoleParticipant:
		return []Role{r, RoleAgent, RoleClient}
	case RoleAll:
		return Roles()
	}
	return []Role{r}
}

// Identity is who connects to the broker.
type Identity struct {
	Role Role
	Name string       // unique; its replies go to a subject of this name
	Node ident.NodeID // of an agent; otherwise empty
	User string       // of a submitter: as whom its jobs run, like processes.user of a spec; empty = as they say
}

// Check validates the identity: Invalid, with the field and what it may be.
func (i Identity) Check() error {
	if !slices.Contains(Roles(), i.Role) {
		var known []string
		for _, r := range Roles() {
			known = append(known, string(r))
		}
		return errcode.Errorf(errcode.Invalid, "role: there is no %q: it is one of %s", i.Role, strings.Join(known, ", "))
	}
	if err := ident.NodeID(i.Name).Check(); err != nil {
		return errcode.Errorf(errcode.Invalid, "name %q: use a-z, 0-9 and '-', at most 63 of them", i.Name)
	}
	switch {
	case !i.Role.OfNode() && i.Node != "":
		return errcode.Errorf(errcode.Invalid, "node %q: the role %s belongs to no node", i.Node, i.Role)
	case i.Role.OfNode() && i.Node != AnyNode && i.Node.Check() != nil:
		return errcode.Errorf(errcode.Invalid, "node %q: use a-z, 0-9 and '-', at most 63 of them", i.Node)
	case i.Role != RoleSubmitter && i.User != "":
		return errcode.Errorf(errcode.Invalid, "user %q: jobs of a %s run as each of them says; those of a %s can have one user", i.User, i.Role, RoleSubmitter)
	}
	return i.submitter().Check()
}

func (i Identity) submitter() events.Submitter { return events.Submitter{Name: i.Name, User: i.User} }

// InboxPrefix returns the prefix of the subjects on which an identity receives replies, and what
// its consumers deliver. No other identity may subscribe to them.
func (i Identity) InboxPrefix() string {
	if i.Role.Outside() {
		return inboxOutside + i.Name
	}
	return "_INBOX_" + i.Name
}

// inboxOutside begins the subjects of all inboxes outside, which their account imports.
const inboxOutside = "_INBOX."

// Permissions are the subjects of an identity, sorted. "*" stands for one token of a subject, and
// ">" for the rest of it. What is not listed is not permitted.
type Permissions struct {
	Publish   []string
	Deny      []string // exceptions from Publish
	Subscribe []string
	Responses bool // it may answer each request that it receives, once
}

// Of returns the permissions of an identity; Invalid if the identity is.
func Of(i Identity) (Permissions, error) {
	if err := i.Check(); err != nil {
		return Permissions{}, err
	}
	g := grants{node: i.Node}
	if i.Role == RoleAll {
		g.node = AnyNode
	}
	g.subscribe(i.InboxPrefix() + ".>")
	roles := i.Role.parts()
	for _, r := range roles {
		g.events(r)
		if r == RoleSubmitter {
			g.publish(jobCommands(i.submitter())...)
		}
		g.channels(r)
		g.streams(r)
	}
	g.protect(roles)
	p := g.permissions
	for _, list := range []*[]string{&p.Publish, &p.Deny, &p.Subscribe} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return p, nil
}

// grants collects permissions.
type grants struct {
	node        ident.NodeID
	permissions Permissions
	ephemeral   []string // streams on which it may create consumers of any name
	cleans      bool     // it may delete consumers, other than those of the services
}

func (g *grants) publish(subjects ...string) {
	g.permissions.Publish = append(g.permissions.Publish, subjects...)
}

func (g *grants) subscribe(subjects ...string) {
	g.permissions.Subscribe = append(g.permissions.Subscribe, subjects...)
}

// events permits to publish the facts and commands of which the role is the writer. A gateway
// publishes the commands of its clients.
func (g *grants) events(r Role) {
	for _, row := range events.Catalog() {
		switch {
		case row.Writer != string(r) && (r != RoleGateway || row.Writer != string(RoleClient)):
		case row.Class == events.ClassCommand:
			g.publish(events.CommandSubject(row.Type))
		default:
			g.publish(events.FactSubject(row.Type, "*"))
		}
	}
}

// jobCommands returns the subjects of the commands about jobs of a submitter.
func jobCommands(of events.Submitter) (all []string) {
	for _, row := range events.Catalog() {
		if row.Class == events.ClassCommand && row.Type.Family() == events.FamilyJob {
			all = append(all, of.Subject(row.Type))
		}
	}
	return all
}

// MayPublish reports whether the permissions allow to publish to a subject without wildcards.
func (p Permissions) MayPublish(subject string) bool {
	return events.MatchAny(p.Publish, subject) && !events.MatchAny(p.Deny, subject)
}

// MaySubscribe reports whether the permissions allow to subscribe to a subject without wildcards.
func (p Permissions) MaySubscribe(subject string) bool { return events.MatchAny(p.Subscribe, subject) }
