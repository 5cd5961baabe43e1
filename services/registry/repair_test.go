package registry_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/registry"
)

// telling runs a replica that says what it repairs.
func telling(t *testing.T, p broker.Ports) (stop func(), printed *[]string) {
	t.Helper()
	printed = new([]string)
	s, err := registry.New(p, func(o controller.Observation) {
		if o.Repaired != "" {
			*printed = append(*printed, o.Entity+": "+o.Repaired)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return controllertest.Start(t, s.Run), printed
}

// TestADestroyedJobIsMadeOfItsFacts: at any moment of its life, while a replica runs and while none
// does. A key of which nothing is known is removed.
func TestADestroyedJobIsMadeOfItsFacts(t *testing.T) {
	for _, running := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bus := memory.New()
			p := bus.Ports()
			stop, printed := telling(t, bus.Client().Ports())
			synctest.Wait()
			id := submit(t, p, "s1", "python", "train.py")
			repaired := 0
			destroy := func(when string) {
				t.Helper()
				before := view(t, p, id)
				if !running {
					stop()
				}
				controllertest.Overwrite(t, p, events.BucketJobs, string(id), controllertest.Answer)
				if !running {
					stop, printed = telling(t, bus.Client().Ports())
					repaired = 0
				}
				synctest.Wait()
				repaired++
				if len(*printed) != repaired || !strings.Contains((*printed)[repaired-1], "could not be read") {
					t.Errorf("%s: said %q", when, *printed)
				}
				after := view(t, p, id)
				if !reflect.DeepEqual(after, before) {
					t.Errorf("%s: it is\n%+v\nand was\n%+v", when, after, before)
				}
			}
			destroy("submitted")
			say(t, p, events.Event{ID: "c1", Source: "/client", Body: events.JobScale{Job: id, Workers: spec.Workers{Min: 2, Max: 2}}})
			fact(t, p, "p1", string(id), 1, events.PlacementSet{Job: id, Places: two})
			destroy("placed")
			fact(t, p, "r1", string(id), 1, sealed(id))
			fact(t, p, "w1", string(id), 0, events.WorkerReady{WorkerRef: ref(id, two[0], "w1"), Step: 1})
			destroy("running")
			fact(t, p, "w2", string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[1], "w2"), ExitCode: 1, Detail: "exit code 1"})
			destroy("a worker failed")
			fact(t, p, "d1", string(id), 0, events.WorkerDone{WorkerRef: ref(id, two[0], "w1"), Step: 9})
			destroy("finishing")
			fact(t, p, "w3", string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[0], "w1"), Done: true, Detail: "exit code 0"})
			if v := view(t, p, id); v.State != events.JobStateSucceeded {
				t.Errorf("it is %s: %s", v.State, v.Reason)
			}
			destroy("ended")
			if again := submit(t, p, "s1", "python", "train.py"); again != id {
				t.Errorf("the same event made %s and %s", id, again)
			}
			wantPublished(t, p, "job.submitted, job.scaled, incident.opened, job.failure-counted, job.respawned, job.finishing, job.progressed, incident.closed, job.succeeded")

			controllertest.Overwrite(t, p, events.BucketJobs, "nobody-1", controllertest.Answer)
			synctest.Wait()
			if _, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), "nobody-1"); errcode.Of(err) != errcode.NotFound {
				t.Errorf("a key of nobody is still there: %v", err)
			}
			stop()
		})
	}
}

// TestATornRecordEndsNoWait: a broker that was killed while it stored the end of a job has the
// record before, in which the job runs, and nothing would ever come for it.
func TestATornRecordEndsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop, _ := telling(t, bus.Client().Ports())
		synctest.Wait()
		id := submit(t, p, "s1", "python", "train.py")
		fact(t, p, "p1", string(id), 1, events.PlacementSet{Job: id, Places: two})
		fact(t, p, "r1", string(id), 1, sealed(id))
		torn, _, err := p.Buckets.Bucket(events.BucketJobs).Load(t.Context(), string(id))
		if err != nil {
			t.Fatal(err)
		}
		fact(t, p, "w1", string(id), 0, events.WorkerReady{WorkerRef: ref(id, two[0], "w1"), Step: 1})
		for n, w := range []string{"w1", "w2"} {
			fact(t, p, "d"+w, string(id), 0, events.WorkerDone{WorkerRef: ref(id, two[n], w), Step: 9})
			fact(t, p, "x"+w, string(id), 0, events.WorkerExited{WorkerRef: ref(id, two[n], w), Done: true, Detail: "exit code 0"})
		}
		ended := view(t, p, id)
		published := published(t, p)
		if ended.State != events.JobStateSucceeded {
			t.Fatalf("it is %s: %s", ended.State, ended.Reason)
		}
		stop()
		controllertest.Overwrite(t, p, events.BucketJobs, string(id), string(torn))
		stop, printed := telling(t, bus.Client().Ports())
		synctest.Wait()
		if v := view(t, p, id); v.State != ended.State || v.Reason != ended.Reason || !v.Ended.Equal(ended.Ended) {
			t.Errorf("it is %s (%s) since %s, and was %s (%s) since %s", v.State, v.Reason, v.Ended, ended.State, ended.Reason, ended.Ended)
		}
		if len(*printed) != 1 || !strings.Contains((*printed)[0], "lacked what was decided last") {
			t.Errorf("said %q", *printed)
		}
		wantPublished(t, p, published)
		stop()
	})
}
