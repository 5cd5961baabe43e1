package jetstream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/usage"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// TestSignalsCrossAccounts: agents, those that come by themselves, people and services are in
// accounts of their own, and those of before, or with the role all, beside the streams. Each is
// connected to another broker, and hears what it did when all were in one account.
func TestSignalsCrossAccounts(t *testing.T) {
	t.Parallel()
	all := guardedCluster(t)
	ports := map[string]broker.Ports{}
	for n, i := range []access.Identity{
		{Role: access.RoleAgent, Name: "agent-a", Node: "node-a"},
		{Role: access.RoleAgent, Name: "agent-b", Node: "node-b"},
		{Role: access.RoleParticipant, Name: "guest", Node: "node-c"},
		{Role: access.RoleParticipant, Name: "guest-d", Node: "node-d"},
		{Role: access.RoleGateway, Name: "gate"},
		{Role: access.RoleViewer, Name: "viv"},
		{Role: access.RoleSubmitter, Name: "sue"},
	} {
		_, err := all[0].dir.Issue(i, 0)
		jetstreamtest.Must(t, err)
		ports[i.Name] = all[n%3].connect(t, i.Name).Ports()
	}
	for n, s := range []string{"discovery", "rendezvous", "registry", "all"} {
		ports[s] = all[n%3].connect(t, s).Ports()
	}
	readers := []string{"registry", "gate", "viv", "sue"}
	for what, c := range map[string]struct {
		pattern, subject string
		from, to         []string
		once             bool // each receipt counts
	}{
		"a heartbeat":         {events.AllHeartbeats, events.HeartbeatSubject("node-a"), []string{"agent-a", "all"}, []string{"discovery", "rendezvous"}, true},
		"a notice":            {events.AllNotices, events.NoticeSubject("demo"), []string{"agent-a", "agent-b", "all", "rendezvous"}, []string{"agent-a", "agent-b", "rendezvous", "all"}, false},
		"a notice of a guest": {events.AllNotices, events.NoticeSubject("demo"), []string{"guest", "guest-d", "rendezvous"}, []string{"guest", "guest-d", "rendezvous"}, false},
		"progress":            {events.AllProgress, events.ProgressSubject("demo"), []string{"agent-a", "agent-b", "guest", "all"}, readers, false},
		"what is used":        {usage.All, usage.Subject("node-a"), []string{"agent-a", "all"}, []string{"gate"}, false},
		"who comes":           {events.RendezvousStatusSubject("demo"), events.RendezvousStatusSubject("demo"), []string{"rendezvous"}, []string{"guest", "guest-d"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			var mu sync.Mutex
			received := map[string]int{}
			for _, to := range c.to {
				ready := make(chan struct{})
				background(t, func(ctx context.Context) error {
					return ports[to].Signals.Hear(ctx, c.pattern, "", func(_ string, data []byte) {
						mu.Lock()
						defer mu.Unlock()
						received[to+" heard "+string(data)]++
					}, func() { close(ready) })
				})
				next(t, ready, "it listens")
			}
			for _, from := range c.from {
				for try := 0; ; try++ { // a broker that has heard of no listener passes nothing on
					sent := fmt.Sprint(from, " ", try)
					jetstreamtest.Must(t, ports[from].Signals.Send(c.subject, []byte(sent)))
					reached := func() bool {
						mu.Lock()
						defer mu.Unlock()
						return !slices.ContainsFunc(c.to, func(to string) bool { return received[to+" heard "+sent] == 0 })
					}
					if eventually(reached) {
						break
					} else if try == 10 {
						t.Fatalf("%s: %v", sent, received)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for s, n := range received {
				if n > 1 && c.once {
					t.Errorf("%s %d times", s, n)
				}
			}
		})
	}
	t.Run("requests, launches and facts", func(t *testing.T) { reached(t, ports) })
}

// reached is what an agent needs beside signals.
func reached(t *testing.T, ports map[string]broker.Ports) {
	t.Helper()
	for node, user := range map[ident.NodeID]string{"node-a": "agent-a", "node-b": "agent-b", "node-c": "guest"} {
		background(t, func(ctx context.Context) error {
			return ports[user].Calls.Serve(ctx, events.AgentSubject(node, events.VerbPing), "", func(context.Context, []byte) ([]byte, error) { return []byte(node), nil })
		})
		jetstreamtest.Retry(t, "ping", func(ctx context.Context) error {
			answer, err := ports["discovery"].Calls.Call(ctx, events.AgentSubject(node, events.VerbPing), nil)
			if err == nil && string(answer) != string(node) {
				t.Errorf("%s answers %q", node, answer)
			}
			return err
		})
		launches := make(chan string, 10)
		background(t, func(ctx context.Context) error {
			return ports[user].Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject(node, "*"), func(m broker.Stored) { launches <- string(m.Data) })
		})
		jetstreamtest.Retry(t, "launch", func(ctx context.Context) error {
			_, err := ports["rendezvous"].Log.Publish(ctx, broker.Message{Subject: events.LaunchSubject(node, "demo"), ID: "launch-" + user, Data: []byte(user)})
			return err
		})
		if got := next(t, launches, "the launch arrives"); got != user {
			t.Errorf("%s is to launch %q", user, got)
		}
		fact := events.FactSubject(events.WorkerStarted{}.Type(), "demo-"+user)
		jetstreamtest.Retry(t, "publish a fact", func(ctx context.Context) error {
			_, err := ports[user].Log.Publish(ctx, broker.Message{Subject: fact, ID: "fact-" + user, Data: []byte("{}")})
			return err
		})
		if _, err := ports["rendezvous"].Log.Last(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, fact); err != nil {
			t.Error(err)
		}
	}
	verb := events.RequestSubject(events.ServiceRendezvous, events.VerbJoin)
	background(t, func(ctx context.Context) error {
		return ports["rendezvous"].Calls.Serve(ctx, verb, "", func(_ context.Context, data []byte) ([]byte, error) {
			return data, errcode.Errorf(errcode.Conflict, "no")
		})
	})
	for _, user := range []string{"agent-a", "agent-b", "guest"} {
		var err error
		jetstreamtest.Await(t, "the service is reached", func() bool {
			_, err = ports[user].Calls.Call(jetstreamtest.Within(t, jetstreamtest.Patience), verb, []byte("{}"))
			return errcode.Of(err) != errcode.Unavailable
		})
		jetstreamtest.WantCode(t, err, errcode.Conflict)
	}
}

// eventually waits a moment for a condition, and says whether it came.
func eventually(ok func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), heardWithin)
	defer cancel()
	return wait.Until(ctx, time.Millisecond, func() (bool, error) { return ok(), nil }) == nil
}

// heardWithin is after which time a signal counts as lost, and is sent again.
const heardWithin = 3 * time.Second
