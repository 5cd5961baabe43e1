package controller_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestLateCommandIsRefused: a command that expired, by the clock of the broker, while no replica
// ran is not carried out, and this is recorded. A redelivered command that was applied before is
// neither refused nor counted twice.
func TestLateCommandIsRefused(t *testing.T) {
	for _, wrong := range []time.Duration{0, -time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			p := memory.New().Ports()
			give := func(id string, expires time.Time) {
				controllertest.PublishEvent(t, p, events.Event{ID: id, Source: "/client", Body: scale("a", 2), Expires: expires})
			}
			run := func() (stop func()) {
				return controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) { o.Now = func() time.Time { return time.Now().Add(wrong) } }).Run)
			}
			expires := time.Now().Add(15 * time.Second)
			give("prompt", expires)
			stop := run()
			time.Sleep(time.Second)
			stop()
			give("late", expires)
			time.Sleep(10 * time.Minute)
			give("prompt", expires) // the broker has forgotten it
			give("late", time.Now().Add(15*time.Second))
			give("never", time.Time{})
			stop = run()
			time.Sleep(time.Minute)
			stop()
			if n := count(t, p, "a"); n != 3 {
				t.Errorf("%d commands were counted, want those in time: prompt, late when it was given again, and never", n)
			}
			if n := strings.Count(published(t, p), "rejected"); n != 1 {
				t.Errorf("published %s, want one refusal", published(t, p))
			}
			last, err := p.Log.Last(t.Context(), events.StreamFacts, events.FactSubject("dev.regroup.job.rejected.v1", "*"))
			if err != nil || !strings.Contains(string(last.Data), "expired") {
				t.Errorf("%s, %v; want the reason", last.Data, err)
			}
		})
	}
}

// TestLateRequestIsRefused: a request that waited in the socket of a stopped process is not carried
// out after its client has given up.
func TestLateRequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Now = func() time.Time { return time.Now().Add(-time.Hour) }
			o.Requests = []controller.Request{{Verb: events.VerbClose, Decode: controller.As[events.RendezvousClose]}}
			o.Route = func(events.Input, func() []string, func(string) (sum, bool)) []string { return []string{"a"} }
		}).Run)
		synctest.Wait()
		for after, refused := range map[time.Duration]bool{time.Second: false, -time.Millisecond: true} {
			data, err := bodies.Encode(events.RendezvousClose{Job: "a", Expires: time.Now().Add(after)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceRegistry, events.VerbClose), data)
			if got := err != nil && strings.Contains(err.Error(), "expired"); got != refused || (!refused && err != nil) {
				t.Errorf("%s before its expiry: %v", after, err)
			}
		}
		stop()
	})
}
