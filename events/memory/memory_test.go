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
		return eventstest.Harness{Ports: bus.Ports(), Reconnect: func() {
			bus.Disconnect()
			bus.Connect()
		}}
	})
}
