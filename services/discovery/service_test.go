package discovery_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a replica inside a synctest bubble.
func start(t *testing.T, p broker.Ports) (stop func()) {
	t.Helper()
	s, err := discovery.New(p, discovery.DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Start(t, s.Run)
}

// agent runs an agent that says hello, sends heartbeats and answers pings until it is stopped.
func agent(t *testing.T, p broker.Ports, n ident.NodeID, inc ident.Incarnation) (stopBeating, stopAnswering func()) {
	t.Helper()
	hello(t, p, n, inc)
	beating := controllertest.Start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			data, _ := bodies.Encode(events.Heartbeat{Node: n, Incarnation: inc, Slots: 2})
			if err := p.Signals.Send(events.HeartbeatSubject(n), data); err != nil && !errors.Is(err, errcode.ErrUnavailable) {
				return err
			}
			select {
			case <-time.After(discovery.HeartbeatEvery):
			case <-ctx.Done():
			}
		}
		return nil
	})
	answering := pinged(t, p, n, func(context.Context, []byte) ([]byte, error) {
		return bodies.Encode(events.Pong{Node: n, Incarnation: inc})
	})
	return beating, answering
}

// pinged handles a node's pings until it is stopped.
func pinged(t *testing.T, p broker.Ports, n ident.NodeID, answer func(context.Context, []byte) ([]byte, error)) (stop func()) {
	t.Helper()
	return controllertest.Start(t, func(ctx context.Context) error {
		if err := p.Calls.Serve(ctx, events.AgentSubject(n, events.VerbPing), "", answer); ctx.Err() == nil {
			return err
		}
		return nil
	})
}

// hello says hello as an agent whose state directory belonged to the incarnation before: A to B, B
// to C.
func hello(t *testing.T, p broker.Ports, n ident.NodeID, inc ident.Incarnation) {
	t.Helper()
	before := ident.Incarnation([]byte{inc[0] - 1})
	data, _ := bodies.Encode(events.NodeHello{Node: n, Incarnation: inc, Slots: 2, Address: "10.0.0.1", Predecessors: []ident.Incarnation{before}})
	if _, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), data); err != nil {
		t.Fatalf("hello: %v", err)
	}
}

// published returns the facts once all is idle: a request is answered before its facts are
// published.
func published(t *testing.T, p broker.Ports) string {
	t.Helper()
	synctest.Wait()
	return controllertest.Facts(t, p, func(e events.Event) string { return e.Entity + " " + e.Body.Type().Kind() })
}

func wantPublished(t *testing.T, p broker.Ports, want string) {
	t.Helper()
	if got := published(t, p); got != want {
		t.Errorf("published %q, want %q", got, want)
	}
}

func TestDeadNodeIsSuspectedPingedAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		beating, answering := agent(t, p, "node-a", "A")
		time.Sleep(10*time.Second + discovery.HeartbeatEvery/2) // no heartbeat is due at this moment
		wantPublished(t, p, "node-a joined")
		beating()
		answering()
		time.Sleep(1500 * time.Millisecond)
		wantPublished(t, p, "node-a joined, node-a suspected")
		time.Sleep(2 * time.Second)
		wantPublished(t, p, "node-a joined, node-a suspected, node-a lost")
		// Its agent is alive after all, and repeats its hello.
		hello(t, p, "node-a", "A")
		wantPublished(t, p, "node-a joined, node-a suspected, node-a lost, node-a joined")
		stopA()
		stopB()
	})
}

// TestHeartbeatsOfAnotherNodeDoNotCount: the broker lets an agent publish those of its own node.
func TestHeartbeatsOfAnotherNodeDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		hello(t, p, "node-a", "A")
		data, err := bodies.Encode(events.Heartbeat{Node: "node-a", Incarnation: "A", Slots: 2})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := p.Signals.Send(events.HeartbeatSubject("node-b"), data); err != nil {
				t.Fatal(err)
			}
			time.Sleep(discovery.HeartbeatEvery)
		}
		if got := published(t, p); !strings.Contains(got, "node-a lost") {
			t.Errorf("published %s", got)
		}
		stop()
	})
}

func TestNodeThatAnswersPingsIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		beating, answering := agent(t, p, "node-a", "A")
		beating() // only its heartbeats are lost
		time.Sleep(30 * time.Second)
		if got := published(t, p); strings.Contains(got, "lost") || !strings.Contains(got, "node-a suspected, node-a recovered") {
			t.Errorf("published %s", got)
		}
		answering()
		stop()
	})
}

// TestDisconnectedReplicaSuspectsNoNode: the replica, not the node, is disconnected for a while;
// and a replica that starts has no past.
func TestDisconnectedReplicaSuspectsNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		client := bus.Client()
		stop := start(t, client.Ports())
		synctest.Wait()
		beating, answering := agent(t, p, "node-a", "A")
		for range 5 {
			client.Disconnect()
			time.Sleep(20 * time.Second)
			client.Connect()
			time.Sleep(5 * time.Second)
		}
		stop()
		time.Sleep(time.Minute)
		stop = start(t, client.Ports())
		time.Sleep(10 * time.Second)
		wantPublished(t, p, "node-a joined")
		beating()
		answering()
		stop()
	})
}

// TestNodeThatWasNeverHeardIsLost: a node that died while no replica ran is detected by the next
// one.
func TestNodeThatWasNeverHeardIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := start(t, p)
		synctest.Wait()
		hello(t, p, "node-a", "A")
		stop()
		stop = start(t, p)
		time.Sleep(4 * time.Second)
		wantPublished(t, p, "node-a joined, node-a suspected, node-a lost")
		stop()
	})
}

func TestRackFallsSilentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := start(t, p)
		synctest.Wait()
		const nodes = 200
		var frozen []func()
		for i := range nodes { // frozen: the ping is received and never answered
			n := ident.NodeID("node-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
			hello(t, p, n, "A")
			frozen = append(frozen, pinged(t, p, n, func(ctx context.Context, _ []byte) ([]byte, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}))
		}
		time.Sleep(7 * time.Second) // twice the timeout of a single one, and the pings
		if got := strings.Count(published(t, p), "lost"); got != nodes {
			t.Errorf("%d of %d silent nodes are lost after 7 s", got, nodes)
		}
		for _, f := range frozen {
			f()
		}
		stop()
	})
}

func TestDrainAndRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := start(t, p)
		synctest.Wait()
		beating, answering := agent(t, p, "node-a", "A")
		drain := func(n ident.NodeID) {
			controllertest.PublishEvent(t, p, events.Event{ID: "d-" + string(n), Source: "/test", Entity: string(n), Body: events.NodeDrain{Node: n}})
		}
		drain("node-a")
		drain("node-x")
		synctest.Wait()
		controllertest.Publish(t, p, broker.Message{Subject: "regroup.cmd.node.drain", ID: "junk", Data: []byte("{")})
		time.Sleep(30 * time.Second)
		wantPublished(t, p, "node-a joined, node-a draining, node-x rejected, unknown rejected")
		last, err := p.Log.Last(t.Context(), events.StreamFacts, events.FactSubject(events.NodeRejected{}.Type(), "node-x"))
		if err != nil {
			t.Fatal(err)
		}
		e, err := cloudevent.Decode(last.Header, last.Data)
		if r, ok := e.Body.(events.NodeRejected); err != nil || !ok || e.Cause != "d-node-x" || r.Command != "d-node-x" || r.Node != "node-x" ||
			r.Code != errcode.NotFound || len(r.Errors) != 1 {
			t.Errorf("rejection %+v, %v", e, err)
		}
		if v := controllertest.View[events.NodeView](t, p, events.BucketNodes, "node-a"); !v.Draining || v.Schedulable() {
			t.Errorf("view %+v", v)
		}
		if _, _, err := p.Buckets.Bucket(events.BucketNodes).Load(t.Context(), "node-x"); !errors.Is(err, errcode.ErrNotFound) {
			t.Errorf("a drain made a node: %v", err)
		}
		for _, bad := range []string{`{"node":"Not A Name","incarnation":"A"}`, `{"node":"node-b"}`, `{`} {
			_, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), []byte(bad))
			if !errors.Is(err, errcode.ErrInvalid) {
				t.Errorf("hello %s: %v, want Invalid", bad, err)
			}
		}
		beating()
		data, _ := bodies.Encode(events.NodeLeave{Node: "node-a", Incarnation: "A", Reason: "maintenance"})
		if _, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceDiscovery, events.VerbLeave), data); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		wantPublished(t, p, "node-a joined, node-a draining, node-x rejected, unknown rejected, node-a left")
		answering()
		stop()
	})
}

func TestConfigReportsAllErrors(t *testing.T) {
	if err := discovery.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	_, err := discovery.New(broker.Ports{}, discovery.Config{SuspectAfter: 1, LostAfter: 0, PingTimeout: 0, KeepLost: -1}, nil)
	lines := strings.Split(err.Error(), "\n")
	if !errors.Is(err, errcode.ErrInvalid) || len(lines) != 6 || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "LostAfter") }) {
		t.Errorf("got %v, want six faults", err)
	}
}
