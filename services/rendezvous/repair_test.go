package rendezvous

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestADestroyedRendezvousFormsItsJobAgain: no generation is sealed twice, launches go on from the
// newest, and the workers that run form the next generation.
func TestADestroyedRendezvousFormsItsJobAgain(t *testing.T) {
	for _, recovery := range []spec.Recovery{spec.RecoveryInProcess, spec.RecoveryRestart} {
		t.Run(string(recovery), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { formAgain(t, recovery) })
		})
	}
}

func formAgain(t *testing.T, recovery spec.Recovery) {
	p := memory.New().Ports()
	run := func() (stop func()) {
		s, err := New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		stop = controllertest.Start(t, s.Run)
		synctest.Wait()
		return stop
	}
	stop := run()
	places := []ident.Place{{Node: "node-a"}, {Node: "node-b"}}
	controllertest.PublishEvent(t, p, events.Event{ID: "p1", Entity: string(job), Number: 1, Body: events.PlacementSet{
		Job: job, Spec: spec.Job{Name: "demo", Command: []string{"x"}, Recovery: recovery}.WithDefaults(), Workers: spec.Workers{Min: 2, Max: 2}, Places: places,
	}})
	synctest.Wait()
	join := func(suffix string) {
		t.Helper()
		for n, place := range places {
			ask, err := bodies.Encode(events.MemberJoin{Job: job, Place: place, Incarnation: ident.Incarnation("W" + suffix + string(rune('a'+n))), Agent: "A", Attempt: 1, Address: "10.0.0.1:5000"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceRendezvous, events.VerbJoin), ask); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
	}
	launch := func() events.Launch {
		t.Helper()
		m, err := p.Log.Last(t.Context(), events.StreamLaunches, events.LaunchSubject("node-a", job))
		if err != nil {
			t.Fatal(err)
		}
		l, err := bodies.Decode[events.Launch](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	facts := func() string {
		synctest.Wait()
		return controllertest.Facts(t, p, func(e events.Event) string { return e.Body.Type().Kind() }, events.FamilySubject(events.FamilyRound, string(job)))
	}
	join("1")
	before := launch()
	if got := facts(); got != "opened, sealed" || before.Phase != events.PhaseRun || before.Generation != 1 {
		t.Fatalf("%s, launch %+v", got, before)
	}
	torn := string(controllertest.Overwrite(t, p, events.BucketRounds, string(job), controllertest.Answer))
	time.Sleep(time.Second)
	synctest.Wait()
	during := launch()
	if got := facts(); got != "opened, sealed, opened" || during.Phase != events.PhasePrepare || during.Generation != 2 || during.Revision <= before.Revision {
		t.Fatalf("%s, launch %+v after %d", got, during, before.Revision)
	}
	if v := controllertest.View[events.RoundView](t, p, events.BucketRounds, string(job)); v.Generation != 1 || v.Proposed != 2 || len(v.Members) != 2 || !strings.Contains(v.Cause.Detail, "lost, and made again") {
		t.Errorf("the rendezvous is %+v", v)
	}
	again := "1" // the same workers come again
	if recovery == spec.RecoveryRestart {
		again = "2"
	}
	join(again)
	after := launch()
	if got := facts(); got != "opened, sealed, opened, sealed" || after.Phase != events.PhaseRun || after.Generation != 2 || after.Token == before.Token || after.Revision <= during.Revision {
		t.Errorf("%s, launch %+v", got, after)
	}
	// A document that was torn back to the first generation does not seal the second one again.
	stop()
	controllertest.Overwrite(t, p, events.BucketRounds, string(job), torn)
	stop = run()
	time.Sleep(time.Second)
	synctest.Wait()
	if v := controllertest.View[events.RoundView](t, p, events.BucketRounds, string(job)); v.Generation != 2 || v.Proposed != 3 {
		t.Errorf("the rendezvous is %+v", v)
	}
	if got := facts(); got != "opened, sealed, opened, sealed, opened" {
		t.Errorf("%s", got)
	}
	if l := launch(); l.Generation != 3 || l.Revision <= after.Revision {
		t.Errorf("launch %+v after %d", l, after.Revision)
	}
	stop()
}
