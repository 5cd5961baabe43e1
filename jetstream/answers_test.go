package jetstream_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// TestAnAgentAnswersOnItsOwnSubject, with its own credentials. A call that no agent hears fails at
// once.
func TestAnAgentAnswersOnItsOwnSubject(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	discovery, i := g.connect(t, events.ServiceDiscovery), g.issue(t, access.RoleAgent, 0)
	ping := events.AgentSubject(i.Node, events.VerbPing)
	call := func() (string, error) {
		answer, err := discovery.Ports().Calls.Call(jetstreamtest.Within(t, jetstreamtest.Patience), ping, []byte("{}"))
		return string(answer), err
	}
	if _, err := call(); errcode.Of(err) != errcode.Unavailable {
		t.Errorf("nobody hears it: %v", err)
	}
	agent := g.connect(t, i.Name)
	background(t, func(ctx context.Context) error {
		return agent.Ports().Calls.Serve(ctx, ping, "", func(_ context.Context, data []byte) ([]byte, error) {
			if string(data) != "{}" {
				return nil, errcode.Errorf(errcode.Invalid, "asked %q", data)
			}
			return []byte(`"pong"`), nil
		})
	})
	jetstreamtest.Retry(t, "call", func(context.Context) error {
		answer, err := call()
		if err == nil && answer != `"pong"` {
			t.Errorf("answered %q", answer)
		}
		return err
	})
	_, err := discovery.Ports().Calls.Call(jetstreamtest.Within(t, jetstreamtest.Patience), ping, []byte("[]"))
	jetstreamtest.WantCode(t, err, errcode.Invalid)
}

// TestAnAgentThatAsksItselfMayPublishNoMore: a broker that lets a client answer what it receives
// lets it publish there, also if it has asked itself.
func TestAnAgentThatAsksItselfMayPublishNoMore(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	discovery := g.connect(t, events.ServiceDiscovery)
	all, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix("_INBOX_all"), nats.UserCredentials(g.dir.Credentials("all")), nats.RootCAs(g.dir.CA()))
	jetstreamtest.Must(t, err)
	t.Cleanup(all.Close)
	ask := func(subject, body string) string {
		m, err := all.Request(subject, []byte(body), jetstreamtest.Patience)
		jetstreamtest.Must(t, err)
		return string(m.Data)
	}
	var mu sync.Mutex
	beats := map[string]int{} // by subject
	background(t, func(ctx context.Context) error {
		return discovery.Ports().Signals.Hear(ctx, events.AllHeartbeats, "", func(subject string, _ []byte) {
			mu.Lock()
			defer mu.Unlock()
			beats[subject]++
		}, nil)
	})
	heartbeats := func(n ident.NodeID) int {
		mu.Lock()
		defer mu.Unlock()
		return beats[events.HeartbeatSubject(n)]
	}
	stored := map[string]string{
		events.LaunchSubject("node-b", "forged"):                           events.StreamLaunches,
		events.BucketSubject(events.BucketJobs, "forged"):                  events.BucketStream(events.BucketJobs),
		events.FactSubject(events.JobRemoved{}.Type(), "forged"):           events.StreamFacts,
		events.Submitter{Name: "eve"}.Subject("dev.regroup.job.submit.v1"): events.StreamCommands,
	}
	for _, r := range []access.Role{access.RoleAgent, access.RoleParticipant} {
		i := g.issue(t, r, 0)
		v := &violations{all: map[string]bool{}}
		nc, err := nats.Connect(g.server.ClientURL(), nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()), nats.ErrorHandler(v.note))
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		own := events.NoticeSubject("x")
		notices, err := nc.SubscribeSync(own)
		jetstreamtest.Must(t, err)
		targets := []string{events.HeartbeatSubject("node-b"), "$JS.API.STREAM.DELETE." + events.StreamFacts}
		for s := range stored {
			targets = append(targets, s)
		}
		for _, s := range targets {
			jetstreamtest.Must(t, nc.PublishRequest(own, s, nil))
			m, err := notices.NextMsg(jetstreamtest.Patience)
			jetstreamtest.Must(t, err)
			jetstreamtest.Must(t, m.Respond([]byte("forged")))
			jetstreamtest.Await(t, string(r)+" is refused to publish to "+s, func() bool { return v.has(s) })
		}
		// What it may publish arrives after all that.
		before := heartbeats(i.Node)
		jetstreamtest.Await(t, "its own heartbeat is heard", func() bool {
			return nc.Publish(events.HeartbeatSubject(i.Node), nil) == nil && heartbeats(i.Node) > before
		})
		if heartbeats("node-b") > 0 {
			t.Errorf("%s has sent a heartbeat of another node", r)
		}
		for s, stream := range stored {
			info := ask("$JS.API.STREAM.INFO."+stream, `{"subjects_filter": "`+s+`"}`)
			if strings.Contains(info, s) || !strings.Contains(info, `"messages"`) {
				t.Errorf("%s has stored a message on %s: %s", r, s, info)
			}
		}
	}
}
