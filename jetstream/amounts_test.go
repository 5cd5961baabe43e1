package jetstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

// dial connects as an identity does, without our library.
func (g *guarded) dial(i access.Identity, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(g.server.ClientURL(), append([]nats.Option{
		nats.Timeout(jetstreamtest.Patience), nats.CustomInboxPrefix(i.InboxPrefix()), nats.UserCredentials(g.dir.Credentials(i.Name)), nats.RootCAs(g.dir.CA()), nats.NoReconnect(),
	}, more...)...)
}

// TestNobodyTakesAllConnections: the newest connections of an identity above its share are closed,
// its first ones and those of others stay.
func TestNobodyTakesAllConnections(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	viewer, other := access.Identity{Role: access.RoleViewer, Name: "eve"}, access.Identity{Role: access.RoleViewer, Name: "ada"}
	agent := access.Identity{Role: access.RoleAgent, Name: "node-a", Node: "node-a"}
	for _, i := range []access.Identity{viewer, other, agent} {
		_, err := g.dir.Issue(i, 0)
		jetstreamtest.Must(t, err)
	}
	bystander, err := g.dial(other)
	jetstreamtest.Must(t, err)
	t.Cleanup(bystander.Close)
	for _, i := range []access.Identity{viewer, agent} {
		most := i.Amounts().Connections
		var all []*nats.Conn
		for range 3 * most {
			nc, err := g.dial(i)
			if err != nil {
				continue // refused already
			}
			t.Cleanup(nc.Close)
			all = append(all, nc)
		}
		open := func() (n int) {
			for _, nc := range all {
				if nc.IsConnected() {
					n++
				}
			}
			return n
		}
		jetstreamtest.Await(t, "the excess is closed", func() bool { return open() <= most })
		for n, nc := range all[:most] {
			if !nc.IsConnected() {
				t.Errorf("%s: connection %d of %d is closed", i.Name, n, most)
			}
		}
	}
	if !bystander.IsConnected() {
		t.Error("the connection of another identity is closed")
	}
}

// TestNobodyTakesTheBrokersMemory by subscriptions and large messages, which its claims bound.
func TestNobodyTakesTheBrokersMemory(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	for _, r := range []access.Role{access.RoleViewer, access.RoleSubmitter, access.RoleClient, access.RoleAgent, access.RoleParticipant} {
		i := g.issue(t, r, 0)
		refused := make(chan error, 1000)
		nc, err := g.dial(i, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}))
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		most := i.Amounts()
		for n := range 2 * most.Subscriptions {
			if _, err := nc.SubscribeSync(fmt.Sprint(i.InboxPrefix(), ".x", n)); err != nil {
				break
			}
		}
		if err := next(t, refused, string(r)+" is refused"); !strings.Contains(err.Error(), "maximum subscriptions") {
			t.Errorf("%s: refused with %v", r, err)
		}
		if int(nc.MaxPayload()) > most.Payload {
			t.Errorf("%s may send %d bytes, want %d", r, nc.MaxPayload(), most.Payload)
		}
	}
}

// TestNobodyTakesTheBrokersTime: an identity that publishes more than its share is locked out for a
// while; one that publishes much at once, and others, stay.
func TestNobodyTakesTheBrokersTime(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	flood, honest := access.Identity{Role: access.RoleAgent, Name: "node-a", Node: "node-a"}, access.Identity{Role: access.RoleAgent, Name: "node-b", Node: "node-b"}
	var conns []*nats.Conn
	for _, i := range []access.Identity{flood, honest} {
		_, err := g.dir.Issue(i, 0)
		jetstreamtest.Must(t, err)
		nc, err := g.dial(i)
		jetstreamtest.Must(t, err)
		t.Cleanup(nc.Close)
		conns = append(conns, nc)
	}
	body := make([]byte, 64<<10)
	publish := func(n int, i access.Identity) bool {
		nc := conns[n]
		return nc.Publish(events.LogSubject("mnist-1", string(i.Node), "0"), body) == nil && nc.FlushTimeout(jetstreamtest.Patience) == nil
	}
	for range access.BurstOfBytes * 3 / 4 / len(body) {
		if !publish(1, honest) {
			t.Fatal("an identity is locked out below its share")
		}
	}
	sent := 0
	for publish(0, flood) {
		if sent += len(body); sent > 1<<30 {
			t.Fatal("the flood does not end")
		}
	}
	if sent < access.BurstOfBytes {
		t.Errorf("it is locked out after %d bytes, want %d at least", sent, access.BurstOfBytes)
	}
	if nc, err := g.dial(flood); err == nil {
		nc.Close()
		t.Error("it connects again at once")
	}
	if !conns[1].IsConnected() || !publish(1, honest) {
		t.Error("the connection of another identity is closed")
	}
	jetstreamtest.Await(t, "it may connect again", func() bool {
		nc, err := g.dial(flood)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	if n := g.log.count("locked out\" user=node-a"); n != 1 {
		t.Errorf("the broker says %d times whom it has locked out, want once:\n%s", n, g.log.text.String())
	}
}

// TestNobodyTakesAllConsumers: a flood of durable consumers of one identity ends at its share, and
// others make theirs. The operator may delete what is left.
func TestNobodyTakesAllConsumers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	operator := g.connect(t, string(access.RoleOperator))
	background(t, func(ctx context.Context) error { return operator.KeepShares(ctx, g.log.logger()) })
	eve, ada := access.Identity{Role: access.RoleViewer, Name: "eve"}, access.Identity{Role: access.RoleViewer, Name: "ada"}
	for _, i := range []access.Identity{eve, ada} {
		_, err := g.dir.Issue(i, 0)
		jetstreamtest.Must(t, err)
	}
	nc, err := g.dial(eve)
	jetstreamtest.Must(t, err)
	t.Cleanup(nc.Close)
	make := func(nc *nats.Conn, name string) error {
		create, err := json.Marshal(map[string]any{"stream_name": events.StreamFacts, "config": map[string]any{"durable_name": name, "name": name, "ack_policy": "none"}})
		jetstreamtest.Must(t, err)
		m, err := nc.Request("$JS.API.CONSUMER.CREATE."+events.StreamFacts+"."+name, create, jetstreamtest.Patience)
		jetstreamtest.Must(t, err)
		if strings.Contains(string(m.Data), `"error"`) {
			return fmt.Errorf("%s", m.Data)
		}
		return nil
	}
	for n := range 2 * access.ConsumersUnasked {
		if err := make(nc, fmt.Sprint("flood-", n)); err != nil {
			t.Fatal(err)
		}
		if n == access.ConsumersUnasked { // whose those are that are made before the broker is asked is never known
			jetstreamtest.Await(t, "the broker is asked", func() bool { return g.log.count("the broker is asked") == 1 })
		}
	}
	owner, err := nats.Connect(g.server.ClientURL(), nats.CustomInboxPrefix("_INBOX_operator"), nats.UserCredentials(g.dir.Credentials("operator")), nats.RootCAs(g.dir.CA()))
	jetstreamtest.Must(t, err)
	t.Cleanup(owner.Close)
	api, err := js.New(owner)
	jetstreamtest.Must(t, err)
	count := func() int {
		s, err := api.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts)
		jetstreamtest.Must(t, err)
		return s.CachedInfo().State.Consumers
	}
	// As many as there may be before anybody asks, and the share.
	jetstreamtest.Await(t, "the flood ends", func() bool { return count() <= access.ConsumersUnasked+1+eve.Amounts().Consumers })
	other, err := g.dial(ada)
	jetstreamtest.Must(t, err)
	t.Cleanup(other.Close)
	for n := range 10 {
		jetstreamtest.Must(t, make(other, fmt.Sprint("ada-", n)))
	}
	jetstreamtest.Await(t, "those of the flood beyond are gone", func() bool {
		_, err := api.Consumer(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, fmt.Sprint("flood-", 2*access.ConsumersUnasked-1))
		return err != nil
	})
	for n := range 10 {
		if _, err := api.Consumer(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, fmt.Sprint("ada-", n)); err != nil {
			t.Errorf("another identity's consumer %d: %v", n, err)
		}
	}
	jetstreamtest.Must(t, api.DeleteConsumer(jetstreamtest.Within(t, jetstreamtest.Patience), events.StreamFacts, "flood-0"))
	if g.log.count("more consumers than its share") != 1 {
		t.Errorf("the log says it %d times", g.log.count("more consumers than its share"))
	}
	s, err := api.Stream(jetstreamtest.Within(t, jetstreamtest.Patience), events.BucketStream(events.BucketJobs))
	jetstreamtest.Must(t, err)
	if c := s.CachedInfo().Config; c.MaxConsumers != access.ConsumersOfStream || c.ConsumerLimits.InactiveThreshold != access.UnusedFor(c.Name) {
		t.Errorf("the stream has no limits: %+v", c)
	}
}
