package discovery_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
)

// connected runs an agent with a connection of its own. Like the real one it says hello again on a
// new connection.
func connected(t *testing.T, c *memory.Client, n ident.NodeID, inc ident.Incarnation) (stop func()) {
	t.Helper()
	p := c.Ports()
	hello := func() {
		data, _ := bodies.Encode(events.NodeHello{Node: n, Incarnation: inc, Slots: 2, Address: "10.0.0.1", Link: p.Links.Own()})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = p.Calls.Call(ctx, events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), data) // repeated every 500 ms
	}
	beating := controllertest.Start(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			hello()
			data, _ := bodies.Encode(events.Heartbeat{Node: n, Incarnation: inc, Slots: 2, Link: p.Links.Own()})
			_ = p.Signals.Send(events.HeartbeatSubject(n), data)
			select {
			case <-time.After(discovery.HeartbeatEvery):
			case <-ctx.Done():
			}
		}
		return nil
	})
	greeting := controllertest.Start(t, func(ctx context.Context) error {
		err := p.Signals.Watch(ctx, func(up bool) {
			if up {
				hello()
			}
		})
		if ctx.Err() == nil {
			return err
		}
		return nil
	})
	answering := pinged(t, p, n, func(context.Context, []byte) ([]byte, error) {
		return bodies.Encode(events.Pong{Node: n, Incarnation: inc, Link: p.Links.Own()})
	})
	return func() { beating(); greeting(); answering() }
}

func TestKilledAgentIsSuspectedAtOnceAndLostAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		c := bus.Client()
		kill := connected(t, c, "node-a", "A")
		time.Sleep(10100 * time.Millisecond) // between two heartbeats
		wantPublished(t, p, "node-a joined")
		c.Disconnect()
		kill()
		time.Sleep(time.Millisecond)
		wantPublished(t, p, "node-a joined, node-a suspected")
		time.Sleep(900 * time.Millisecond)
		wantPublished(t, p, "node-a joined, node-a suspected")
		// Pings repeat that long, because the agent may be about to reconnect.
		time.Sleep(300*time.Millisecond + discovery.DefaultConfig().PingTimeout)
		wantPublished(t, p, "node-a joined, node-a suspected, node-a lost")
		stopA()
		stopB()
	})
}

func TestBrokenLinkLosesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stopA, stopB := start(t, bus.Client().Ports()), start(t, bus.Client().Ports())
		synctest.Wait()
		c := bus.Client()
		end := connected(t, c, "node-a", "A")
		time.Sleep(time.Second)
		want := "node-a joined"
		for range 5 {
			c.Disconnect()
			time.Sleep(700 * time.Millisecond)
			c.Connect()
			time.Sleep(time.Millisecond)
			want += ", node-a suspected, node-a recovered"
			wantPublished(t, p, want)
			time.Sleep(3 * time.Second)
		}
		wantPublished(t, p, want)
		end()
		stopA()
		stopB()
	})
}

// TestBrokerRestartLosesNoNode: the broker dies with all connections and returns. No connection is
// reported as closed, and heartbeats get a full timeout.
func TestBrokerRestartLosesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := start(t, bus.Client().Ports())
		synctest.Wait()
		var ends []func()
		for _, n := range []ident.NodeID{"node-a", "node-b"} {
			ends = append(ends, connected(t, bus.Client(), n, "A"))
		}
		time.Sleep(5 * time.Second)
		bus.Disconnect()
		time.Sleep(30 * time.Second)
		bus.Connect()
		time.Sleep(30 * time.Second)
		if got := published(t, p); strings.Contains(got, "suspected") || strings.Contains(got, "lost") {
			t.Errorf("published %s", got)
		}
		for _, end := range ends {
			end()
		}
		stop()
	})
}

// deaf is a system without the broker's reports of closed connections.
type deaf struct{ broker.Links }

func (deaf) Ends(context.Context, func(broker.Link), func()) error {
	return errcode.Errorf(errcode.NotFound, "no access to the system account")
}

func TestWithoutTheSystemAccountHeartbeatsDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Client().Ports()
		p.Links = deaf{p.Links}
		var mu sync.Mutex
		var reported []string
		s, err := discovery.New(p, discovery.DefaultConfig(), func(o controller.Observation) {
			mu.Lock()
			defer mu.Unlock()
			if o.Err != nil {
				reported = append(reported, o.Err.Error())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := controllertest.Start(t, s.Run)
		synctest.Wait()
		c := bus.Client()
		kill := connected(t, c, "node-a", "A")
		time.Sleep(1100 * time.Millisecond) // between two heartbeats
		c.Disconnect()
		kill()
		time.Sleep(900 * time.Millisecond)
		wantPublished(t, bus.Ports(), "node-a joined")
		time.Sleep(3 * time.Second)
		wantPublished(t, bus.Ports(), "node-a joined, node-a suspected, node-a lost")
		mu.Lock()
		defer mu.Unlock()
		if len(reported) != 1 || !strings.Contains(reported[0], "the system account is unavailable: heartbeats decide") {
			t.Errorf("reported %q", reported)
		}
		stop()
	})
}
