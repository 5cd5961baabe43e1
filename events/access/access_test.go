package access_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
)

// of returns the permissions of a role; agents are those of node-a.
func of(t *testing.T, r access.Role) access.Permissions {
	t.Helper()
	i := access.Identity{Role: r, Name: "it"}
	if r.OfNode() {
		i.Node = "node-a"
	}
	p, err := access.Of(i)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOnlyTheWriterPublishes each fact, and each command only those who are clients.
func TestOnlyTheWriterPublishes(t *testing.T) {
	for _, row := range events.Catalog() {
		subject := events.FactSubject(row.Type, "demo-1")
		if row.Class == events.ClassCommand {
			subject = events.CommandSubject(row.Type)
		}
		writers := []string{row.Writer, string(access.RoleAll)}
		switch row.Writer {
		case string(access.RoleAgent), string(access.RoleClient):
			writers = append(writers, string(access.RoleParticipant))
		}
		if row.Writer == string(access.RoleClient) {
			writers = append(writers, string(access.RoleGateway))
		}
		for _, r := range access.Roles() {
			if got, want := of(t, r).MayPublish(subject), slices.Contains(writers, string(r)); got != want {
				t.Errorf("%s may publish %s: %v, want %v", r, subject, got, want)
			}
			if of(t, r).MaySubscribe(subject) {
				t.Errorf("%s may subscribe to %s without a consumer", r, subject)
			}
		}
	}
}

// TestAnAgentIsOfItsNode: no subject of another node is open to it.
func TestAnAgentIsOfItsNode(t *testing.T) {
	for _, r := range []access.Role{access.RoleAgent, access.RoleParticipant} {
		p := of(t, r)
		for node, want := range map[ident.NodeID]bool{"node-a": true, "node-b": false} {
			for _, subject := range []string{events.HeartbeatSubject(node), events.LogSubject("demo-1", string(node), "0")} {
				if got := p.MayPublish(subject); got != want {
					t.Errorf("%s of node-a may publish %s: %v, want %v", r, subject, got, want)
				}
			}
			for _, subject := range []string{events.LaunchSubject(node, "demo-1"), events.AgentSubject(node, events.VerbPing)} {
				if got := p.MaySubscribe(subject); got != want {
					t.Errorf("%s of node-a may subscribe to %s: %v, want %v", r, subject, got, want)
				}
				if p.MayPublish(subject) {
					t.Errorf("%s of node-a may publish %s", r, subject)
				}
			}
		}
	}
}

// TestNobodyDeletes streams or messages, and only the operator makes, copies and restores streams.
func TestNobodyDeletes(t *testing.T) {
	for _, r := range access.Roles() {
		p := of(t, r)
		operates := r == access.RoleOperator || r == access.RoleAll
		for _, s := range events.Streams() {
			for _, verb := range []string{"STREAM.DELETE.", "STREAM.PURGE.", "STREAM.MSG.DELETE.", "STREAM.LEADER.STEPDOWN."} {
				if p.MayPublish("$JS.API." + verb + s) {
					t.Errorf("%s may %s%s", r, verb, s)
				}
			}
			for _, verb := range []string{"STREAM.CREATE.", "STREAM.UPDATE.", "STREAM.SNAPSHOT.", "STREAM.RESTORE."} {
				if got := p.MayPublish("$JS.API." + verb + s); got != operates {
					t.Errorf("%s may %s%s: %v", r, verb, s, got)
				}
			}
		}
		if p.MayPublish("$JS.API.STREAM.CREATE.OTHER") {
			t.Errorf("%s may create a stream that is not ours", r)
		}
	}
}

// TestAServiceWritesItsBucketAlone, and the consumers of a service are its own.
func TestAServiceWritesItsBucketAlone(t *testing.T) {
	for _, s := range events.Services() {
		for _, r := range access.Roles() {
			p, own := of(t, r), string(r) == s.Name || r == access.RoleAll
			if subject := events.BucketSubject(s.Bucket, "demo-1"); p.MayPublish(subject) != own {
				t.Errorf("%s may publish %s: %v", r, subject, !own)
			}
			for _, d := range s.Durables() {
				for _, subject := range []string{
					"$JS.API.CONSUMER.CREATE.REGROUP_EVT." + d, "$JS.API.CONSUMER.CREATE.REGROUP_EVT." + d + ".regroup.evt.job.x.submitted",
					"$JS.API.CONSUMER.MSG.NEXT.REGROUP_EVT." + d, "$JS.ACK.REGROUP_EVT." + d + ".1.1.1.1.1",
				} {
					if p.MayPublish(subject) != own {
						t.Errorf("%s may publish %s: %v", r, subject, !own)
					}
				}
				if p.MayPublish("$JS.API.CONSUMER.DELETE.REGROUP_EVT."+d) && r != access.RoleAll {
					t.Errorf("%s may delete the consumer %s", r, d)
				}
			}
		}
	}
}

// TestOnlyServicesAnswerAnywhere: who may answer what it hears can ask itself, and publish
// anywhere.
func TestOnlyServicesAnswerAnywhere(t *testing.T) {
	for _, r := range access.Roles() {
		if want := slices.Contains(events.ServiceNames(), string(r)) || r == access.RoleAll; of(t, r).Responses != want {
			t.Errorf("%s may answer anywhere: %v, want %v", r, !want, want)
		}
	}
}

// TestReadersAskForBacklogs: people may ask how far each service is, and agents may not.
func TestReadersAskForBacklogs(t *testing.T) {
	readers := []access.Role{access.RoleClient, access.RoleSubmitter, access.RoleViewer, access.RoleGateway, access.RoleParticipant, access.RoleOperator, access.RoleAll}
	for _, s := range events.Services() {
		for _, stream := range s.Consumes() {
			for _, d := range s.Durables() {
				for _, r := range access.Roles() {
					want := slices.Contains(readers, r) || string(r) == s.Name
					if got := of(t, r).MayPublish("$JS.API.CONSUMER.INFO." + stream + "." + d); got != want {
						t.Errorf("%s may ask about the consumer %s of %s: %v, want %v", r, d, stream, got, want)
					}
				}
			}
		}
	}
}

// TestRepliesArePrivate: nobody may subscribe to the replies of another.
func TestRepliesArePrivate(t *testing.T) {
	for _, r := range access.Roles() {
		p := of(t, r)
		for _, subject := range []string{"_INBOX.x.y", "_INBOX.other.x", "_INBOX_other.x"} {
			if p.MaySubscribe(subject) {
				t.Errorf("%s may subscribe to %s", r, subject)
			}
		}
		if !p.MaySubscribe(access.Identity{Role: r, Name: "it"}.InboxPrefix() + ".x.y") {
			t.Errorf("%s may not subscribe to its own replies", r)
		}
	}
}

func TestViewersOnlyRead(t *testing.T) {
	for _, s := range of(t, access.RoleViewer).Publish {
		if !strings.HasPrefix(s, "$JS.API.") && !strings.HasPrefix(s, "$JS.FC.") && s != events.RequestSubject(events.ServiceRegistry, events.VerbProgress) && !strings.HasSuffix(s, "."+events.VerbAlive) {
			t.Errorf("a viewer may publish %s", s)
		}
	}
}

// TestAGatewayIsNoClient: it has no more than what HTTP offers.
func TestAGatewayIsNoClient(t *testing.T) {
	gateway, client := of(t, access.RoleGateway), of(t, access.RoleClient)
	for _, s := range []string{
		events.RequestSubject(events.ServiceRendezvous, events.VerbClose), events.RequestSubject(events.ServiceRegistry, events.VerbProgress),
	} {
		if gateway.MayPublish(s) || !client.MayPublish(s) {
			t.Errorf("%s: gateway %v, client %v", s, gateway.MayPublish(s), client.MayPublish(s))
		}
	}
	for _, s := range gateway.Publish {
		if !slices.Contains(client.Publish, s) && s != events.SpanSubject(events.ServiceGateway) {
			t.Errorf("a gateway may publish %s, and a client may not", s)
		}
	}
}

func TestIdentitiesAreChecked(t *testing.T) {
	for field, i := range map[string]access.Identity{
		"role":      {Role: "king", Name: "a"},
		"name":      {Role: access.RoleClient, Name: "a.>"},
		"node":      {Role: access.RoleAgent, Name: "a", Node: "a.b"},
		"node \"\"": {Role: access.RoleParticipant, Name: "a"},
		"no node":   {Role: access.RoleClient, Name: "a", Node: "node-a"},
	} {
		_, err := access.Of(i)
		if errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v, want Invalid about %s", i, err, field)
		}
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(page), access.Markdown()) {
		t.Error("docs/security.md does not end with the table of permissions: make generate")
	}
}
