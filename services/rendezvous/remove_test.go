package rendezvous

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestRoundOfRemovedJobIsRemoved covers the removal seen as a fact, a missed removal, and an end of
// the job that is published again after the removal.
func TestRoundOfRemovedJobIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		facts []events.Body
		state events.JobState // state in the job's record; empty = the record says only that the job was removed
		gone  bool
	}{
		"heard":       {[]events.Body{events.JobStopped{JobEnd: events.JobEnd{Job: job}}, events.JobRemoved{Job: job}}, "", true},
		"overtaken":   {[]events.Body{events.JobRemoved{Job: job}, events.JobStopped{JobEnd: events.JobEnd{Job: job}}}, "", true},
		"missed":      {[]events.Body{events.JobStopped{JobEnd: events.JobEnd{Job: job}}}, "", true},
		"not removed": {[]events.Body{events.JobStopped{JobEnd: events.JobEnd{Job: job}}}, events.JobStateStopped, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := memory.New().Ports()
				controllertest.Record(t, p, events.BucketJobs, string(job), 9, events.JobView{Job: job, State: c.state})
				s, err := New(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				stop := controllertest.Start(t, s.Run)
				synctest.Wait()
				controllertest.PublishEvent(t, p, events.Event{ID: "p1", Source: "/test", Entity: string(job), Number: 1, Body: events.PlacementSet{
					Job: job, Spec: spec.Job{Name: "demo", Command: []string{"x"}}.WithDefaults(), Workers: spec.Workers{Min: 1, Max: 1},
					Places: []ident.Place{{Node: "node-a"}},
				}})
				synctest.Wait()
				for i, b := range c.facts {
					controllertest.PublishEvent(t, p, events.Event{ID: "f" + string(rune('1'+i)), Source: "/test", Entity: string(job), Number: uint64(i + 1), Body: b})
					synctest.Wait()
				}
				time.Sleep(time.Minute) // let the records be compared
				_, _, err = p.Buckets.Bucket(events.BucketRounds).Load(t.Context(), string(job))
				if gone := errcode.Of(err) == errcode.NotFound; gone != c.gone {
					t.Errorf("gone: %v, want %v (%v)", gone, c.gone, err)
				}
				if !c.gone {
					stop()
					return
				}
				m, err := p.Log.Last(t.Context(), events.StreamLaunches, events.LaunchSubject("node-a", job))
				if err != nil {
					t.Fatal(err)
				}
				if l, err := bodies.Decode[events.Launch](m.Data); err != nil || l.Phase != events.PhaseStop {
					t.Errorf("the node has no stop: %+v, %v", l, err)
				}
				stop()
			})
		})
	}
}
