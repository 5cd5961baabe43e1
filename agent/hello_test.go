package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/agent"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
)

// journal records an agent's log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) warnings() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), "level=WARN")
}

// TestOnlyALongAbsenceOfDiscoveryIsAWarning: services and agents usually start together. A refusal
// is logged at once.
func TestOnlyALongAbsenceOfDiscoveryIsAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		answer       error // nil = no answer
		early, later int
	}{
		"absent":  {nil, 0, 1},
		"refuses": {errcode.Errorf(errcode.Conflict, "node-a has a living agent"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				ports := memory.New().Ports()
				var all sync.WaitGroup
				if c.answer != nil {
					all.Go(func() {
						_ = ports.Calls.Serve(ctx, events.RequestSubject(events.ServiceDiscovery, events.VerbJoin), "",
							func(context.Context, []byte) ([]byte, error) { return nil, c.answer })
					})
					synctest.Wait()
				}
				log := &journal{}
				a, err := agent.New(agent.Options{
					Node: "node-a", Slots: 1, Advertise: "10.0.0.1", StateDir: t.TempDir(), Ports: ports, Driver: newFakeDriver(), Incarnation: "01AGENT",
					Listen:    func(context.Context, string) (net.Listener, error) { return newPipes(), nil },
					ListenTCP: listenNowhere,
					Logger:    slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
				})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					if err := a.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
				time.Sleep(2900 * time.Millisecond)
				if n := log.warnings(); n != c.early {
					t.Errorf("%d warnings after 2.9 s, want %d: %s", n, c.early, log.text.String())
				}
				time.Sleep(time.Minute)
				if n := log.warnings(); n != c.later {
					t.Errorf("%d warnings after a minute, want %d: %s", n, c.later, log.text.String())
				}
				stop()
				all.Wait()
			})
		})
	}
}
