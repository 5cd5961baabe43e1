package agent_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/memory"
)

// played is a fake discovery that admits every node, in real time.
type played struct {
	ports     broker.Ports
	announced atomic.Pointer[events.Departure]
}

func playedDiscovery(t *testing.T) *played {
	t.Helper()
	p := &played{ports: memory.New().Ports()}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, verb := range []string{events.VerbJoin, events.VerbLeave} {
		all.Go(func() {
			_ = p.ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceDiscovery, verb), "", func(_ context.Context, data []byte) ([]byte, error) {
				if b, err := bodies.Decode[events.NodeHello](data); err == nil && b.Departing != nil {
					p.announced.Store(b.Departing)
				}
				return bodies.Encode(events.NodeWelcome{})
			})
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
	return p
}

func (p *played) agent(t *testing.T, c agent.Config) *agent.Agent {
	t.Helper()
	a, err := agent.New(agent.Options{
		Node: "node-a", Slots: 1, Advertise: "127.0.0.1", StateDir: t.TempDir(), Ports: p.ports, Driver: newFakeDriver(), Incarnation: "01AGENT", Config: c,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
