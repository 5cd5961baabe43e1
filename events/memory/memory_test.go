package memory_test

import (
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { conform(t, memory.Options{}, nil) }

// TestInterceptedConnectionsConform: an interceptor that executes everything changes nothing.
func TestInterceptedConnectionsConform(t *testing.T) {
	var seen atomic.Int64
	conform(t, memory.Options{
		Stored:  func(string, broker.Stored) {},
		Changed: func(string, string, []byte, uint64) {},
		Sent:    func(string, []byte) {},
	}, func(_ memory.Operation, execute func() error) error {
		seen.Add(1)
		return execute()
	})
	if seen.Load() == 0 {
		t.Error("nothing was intercepted")
	}
}

func conform(t *testing.T, o memory.Options, by memory.Interceptor) {
	eventstest.Run(t, func(*testing.T) eventstest.Harness {
		bus := memory.NewWith(o)
		return eventstest.Harness{
			Ports: bus.Intercepted(by).Ports(),
			Reconnect: func() {
				bus.Disconnect()
				bus.Connect()
			},
			Client: func(*testing.T) eventstest.Client {
				c := bus.Intercepted(by)
				return eventstest.Client{Ports: c.Ports(), End: c.Disconnect, Reconnect: func() {
					c.Disconnect()
					c.Connect()
				}}
			},
		}
	})
}
