package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	eventstest.Run(t, func(*testing.T) eventstest.Harness {
		bus := memory.New()
		return eventstest.Harness{
			Ports: bus.Ports(),
			Reconnect: func() {
				bus.Disconnect()
				bus.Connect()
			},
			Client: func(*testing.T) eventstest.Client {
				c := bus.Client()
				return eventstest.Client{Ports: c.Ports(), End: c.Disconnect, Reconnect: func() {
					c.Disconnect()
					c.Connect()
				}}
			},
		}
	})
}
