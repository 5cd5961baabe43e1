package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// TestTwoReplicasApplyEveryInputOnce: two replicas share a consumer while saves conflict and
// acknowledgements are lost. Every command counts once, and its fact is published once.
func TestTwoReplicasApplyEveryInputOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		n := 0
		bus.FailSaves(func(string, string) (bool, error) {
			n++
			return n%5 == 0, nil // lost acknowledgements
		})
		stopA := controllertest.Start(t, host(t, bus.Client().Ports(), nil).Run)
		stopB := controllertest.Start(t, host(t, bus.Client().Ports(), nil).Run)
		const commands = 200
		for i := range commands {
			command(t, p, fmt.Sprint(i), scale([]string{"a", "b", "c"}[i%3], 2))
		}
		time.Sleep(10 * time.Second)
		stopA()
		stopB()
		total := count(t, p, "a") + count(t, p, "b") + count(t, p, "c")
		facts := strings.Split(published(t, p), ", ")
		if total != commands || len(facts) != commands {
			t.Errorf("counted %d and published %d, want %d", total, len(facts), commands)
		}
	})
}

func TestOutboxOfADeadReplicaIsPublishedAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		bus.FailPublishes(func(string) (bool, error) { return false, errcode.Errorf(errcode.Unavailable, "crashed here") })
		process(t, processor(t, p), input("1", scale("a", 2)))
		bus.FailPublishes(nil)
		stopA := controllertest.Start(t, host(t, p, nil).Run)
		stopB := controllertest.Start(t, host(t, p, nil).Run)
		time.Sleep(500 * time.Millisecond)
		wantPublished(t, p)
		time.Sleep(time.Second)
		wantPublished(t, p, "scaled 1")
		stopA()
		stopB()
		wantPublished(t, p, "scaled 1")
	})
}

func TestDeadlineFiresOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stopA := controllertest.Start(t, host(t, p, nil).Run)
		command(t, p, "1", scale("a", 99))
		time.Sleep(time.Second)
		stopA()
		stopB := controllertest.Start(t, host(t, p, nil).Run) // sets timers for what it finds in the bucket
		time.Sleep(3900 * time.Millisecond)
		wantPublished(t, p, "scaled 1")
		time.Sleep(200 * time.Millisecond)
		wantPublished(t, p, "scaled 1", "finishing 2")
		stopB()
	})
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := controllertest.Start(t, host(t, p, nil).Run)
		command(t, p, "1", scale("a", 2))
		synctest.Wait()
		ask := func(data string) (string, error) {
			got, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceRegistry, events.VerbJoin), []byte(data))
			return string(got), err
		}
		for range 2 {
			if got, err := ask(`{"job":"a"}`); err != nil || !strings.Contains(got, `"proposed":1`) {
				t.Errorf("answer %s, %v", got, err)
			}
		}
		if _, err := ask(`{"job":7}`); !errors.Is(err, errcode.ErrInvalid) {
			t.Errorf("a malformed request got %v, want Invalid", err)
		}
		stop()
		if _, err := ask(`{"job":"a"}`); !errors.Is(err, errcode.ErrUnavailable) {
			t.Errorf("a stopped service answered %v, want Unavailable", err)
		}
	})
}

func TestRefusedCommandsBecomeFactsAndAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		stop := controllertest.Start(t, host(t, p, nil).Run)
		command(t, p, "no", events.JobStop{Job: "a"})
		controllertest.Publish(t, p, broker.Message{Subject: events.CommandSubject("dev.regroup.job.scale.v1"), Data: []byte("not an event")})
		for range 3 {
			time.Sleep(10 * time.Second) // it is not redelivered
			wantPublished(t, p, "rejected 0", "rejected 0")
		}
		last, err := p.Log.Last(t.Context(), events.StreamFacts, events.FactSubject("dev.regroup.job.rejected.v1", "a"))
		if err != nil || !strings.Contains(string(last.Data), "a is never stopped") {
			t.Errorf("%s, %v; want the reason", last.Data, err)
		}
		if _, err := p.Log.Last(t.Context(), events.StreamFacts, events.FactSubject("dev.regroup.job.rejected.v1", "unknown")); err != nil {
			t.Errorf("the malformed command left no fact: %v", err)
		}
		stop()
	})
}

// TestWhatCameOnAnotherSubjectIsRefused: the broker decides by subjects who may publish what.
func TestWhatCameOnAnotherSubjectIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		var mu sync.Mutex
		failed := ""
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Signals = []controller.Subscription{{Subject: events.AllHeartbeats, Decode: controller.As[events.Heartbeat]}}
			o.Observe = func(ob controller.Observation) {
				mu.Lock()
				defer mu.Unlock()
				if ob.Err != nil {
					failed += ob.Err.Error()
				}
			}
		}).Run)
		synctest.Wait()
		m, err := cloudevent.Encode(events.Event{ID: "forged", Source: "/client/test", Time: time.Now(), Body: scale("a", 2)})
		if err != nil {
			t.Fatal(err)
		}
		m.Subject = events.CommandSubject(events.JobRemove{}.Type())
		controllertest.Publish(t, p, m)
		beat, err := bodies.Encode(events.Heartbeat{Node: "node-a", Incarnation: "A", Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []ident.NodeID{"node-a", "node-b"} {
			if err := p.Signals.Send(events.HeartbeatSubject(n), beat); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		stop()
		wantPublished(t, p, "rejected 0")
		if got := count(t, p, "a"); got >= 0 {
			t.Errorf("count is %d, of what was never applied", got)
		}
		mu.Lock()
		defer mu.Unlock()
		if strings.Count(failed, "a heartbeat of node-a came on regroup.sig.heartbeat.node-b") != 1 || strings.Count(failed, "came on") != 1 {
			t.Errorf("failed: %s", failed)
		}
	})
}

// TestBadInputDoesNotFailOthers: an input on which the machine panics is finally dropped; others of
// the batch are applied.
func TestBadInputDoesNotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		for i, most := range []int{2, 13, 2} {
			command(t, p, fmt.Sprint(i), scale("a", most))
		}
		var mu sync.Mutex
		failed := 0
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Observe = func(ob controller.Observation) {
				mu.Lock()
				defer mu.Unlock()
				if errcode.Of(ob.Err) == errcode.Internal {
					failed++
				}
			}
		}).Run)
		time.Sleep(time.Minute)
		stop()
		if got := count(t, p, "a"); got != 2 {
			t.Errorf("count is %d, want 2", got)
		}
		if failed == 0 || failed > 10 {
			t.Errorf("it failed %d times, want a bounded number", failed)
		}
	})
}

func TestInputsOfANewerDocumentAreLeftToNewerReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		b := p.Buckets.Bucket(events.BucketJobs)
		revision, err := b.Save(t.Context(), "a", []byte(`{"schema":99,"version":1,"state":{}}`), 0)
		if err != nil {
			t.Fatal(err)
		}
		stop := controllertest.Start(t, host(t, p, nil).Run)
		command(t, p, "1", scale("a", 2))
		time.Sleep(time.Minute)
		wantPublished(t, p)
		// A newer replica has stored the document in a form that this version can read.
		if _, err := b.Save(t.Context(), "a", []byte(`{"schema":1,"version":2,"state":{"view":{"count":40}}}`), revision); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := count(t, p, "a"); got != 41 {
			t.Errorf("count is %d, want 41: the command must have been kept", got)
		}
		stop()
	})
}

func TestBucketOutageLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memory.New()
		p := bus.Ports()
		stop := controllertest.Start(t, host(t, bus.Client().Ports(), nil).Run)
		down := true
		var mu sync.Mutex
		fail := func() (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return false, errcode.Errorf(errcode.Unavailable, "no leader")
			}
			return false, nil
		}
		bus.FailSaves(func(string, string) (bool, error) { return fail() })
		for i := range 10 {
			command(t, p, fmt.Sprint(i), scale("a", 2))
		}
		time.Sleep(8 * time.Second)
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(5 * time.Second)
		if got := count(t, p, "a"); got != 10 {
			t.Errorf("count is %d, want 10", got)
		}
		stop()
	})
}

func TestSignalsTasksAndReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		rounds := 0
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Signals = []controller.Subscription{{Subject: events.AllProgress, Decode: controller.As[events.JobScale]}}
			o.Reconcile = func(_ context.Context, emit controller.Emit) error {
				rounds++
				emit(events.Input{Body: scale("reconciled", 2)})
				return errcode.Errorf(errcode.Unavailable, "is observed and tried again")
			}
			o.Tasks = []controller.Task{func(ctx context.Context, emit controller.Emit) error {
				emit(events.Input{Body: scale("emitted", 2)})
				<-ctx.Done()
				return ctx.Err()
			}}
		}).Run)
		synctest.Wait()
		if err := p.Signals.Send(events.ProgressSubject("a"), []byte(`{"job":"signalled","workers":{"min":1,"max":2}}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		stop()
		for entity, want := range map[string]int{"reconciled": 3, "emitted": 1, "signalled": 1} {
			if got := count(t, p, entity); got != want {
				t.Errorf("%s is %d, want %d", entity, got, want)
			}
		}
		if rounds != 3 {
			t.Errorf("reconciled %d times in 25 s, want 3", rounds)
		}
	})
}

// watched counts the watches of a bucket.
type watched struct {
	broker.Buckets
	n *atomic.Int64
}

func (w watched) Bucket(name string) broker.Bucket { return watchedBucket{w.Buckets.Bucket(name), w.n} }

type watchedBucket struct {
	broker.Bucket
	n *atomic.Int64
}

func (w watchedBucket) Watch(ctx context.Context, fn func(string, []byte, uint64), listed func()) error {
	w.n.Add(1)
	return w.Bucket.Watch(ctx, fn, listed)
}

// TestWatchersShareTheWatchOfTheHost: the broker sends each document to each watch, so one must do.
func TestWatchersShareTheWatchOfTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		process(t, processor(t, p), input("1", scale("a", 2)))
		own := p
		var watches atomic.Int64
		own.Buckets = watched{p.Buckets, &watches}
		var mu sync.Mutex
		var seen []string
		known := document.Reader[json.RawMessage]{Bucket: p.Buckets.Bucket(events.BucketJobs)}
		stop := controllertest.Start(t, host(t, own, func(o *controller.Options[sum]) {
			o.Watchers = []controller.Watcher{controller.Own(&known), func(emit controller.Emit) (func(string, []byte), func(), func()) {
				return func(key string, value []byte) {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, fmt.Sprint(key, " ", value == nil))
						if key == "a" {
							emit(events.Input{Body: scale("emitted", 2)})
						}
					}, func() {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, "listed")
					}, nil
			}}
		}).Run)
		time.Sleep(time.Second)
		mu.Lock()
		if want := []string{"a false", "listed", "emitted false"}; !slices.Equal(seen, want) {
			t.Errorf("the watcher saw %q, want %q", seen, want)
		}
		mu.Unlock()
		if _, ok := known.Known("emitted"); !ok {
			t.Error("the reader does not know a document that the host has stored")
		}
		stop()
		synctest.Wait()
		if _, ok := known.Known("emitted"); ok {
			t.Error("the reader still answers from memory after the host has ended")
		}
		if n := watches.Load(); n != 1 {
			t.Errorf("%d watches, want 1", n)
		}
	})
}

func TestObservationsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		var mu sync.Mutex
		var seen []string
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Reject = nil
			o.Observe = func(ob controller.Observation) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ob.Fact != nil:
					seen = append(seen, ob.Entity+" "+ob.Fact.Body.Type().Kind())
				case ob.Refusal != nil:
					seen = append(seen, ob.Entity+" refused: "+ob.Refusal.Error())
				}
			}
		}).Run)
		command(t, p, "0", scale("a", 2))
		for i := range 3 {
			command(t, p, fmt.Sprint("stop", i), events.JobStop{Job: "a"})
			time.Sleep(time.Second)
		}
		stop()
		if want := []string{"a scaled", "a refused: a is never stopped"}; !slices.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
	})
}

// TestObservationsHaveTheTraceOfTheirInput: facts, refusals, malformed messages and failures.
func TestObservationsHaveTheTraceOfTheirInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		trace := func(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }
		var mu sync.Mutex
		seen := map[string]string{}
		stop := controllertest.Start(t, host(t, p, func(o *controller.Options[sum]) {
			o.Observe = func(ob controller.Observation) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ob.Fact != nil:
					seen[ob.Fact.Body.Type().Kind()] = ob.Trace
				case ob.Refusal != nil:
					seen["refused"] = ob.Trace
				case ob.Err != nil:
					seen["failed"] = ob.Trace
				}
			}
		}).Run)
		for i, b := range []events.Body{scale("a", 2), events.JobStop{Job: "a"}, scale("a", 13)} { // the machine panics at 13
			controllertest.PublishEvent(t, p, events.Event{ID: fmt.Sprint(i), Source: "/test", Entity: "a", Trace: trace(i + 1), Body: b})
			time.Sleep(time.Second)
		}
		stop()
		if want := map[string]string{"scaled": trace(1), "refused": trace(2), "rejected": trace(2), "failed": trace(3)}; !maps.Equal(seen, want) {
			t.Errorf("observed %q, want %q", seen, want)
		}
	})
}

func TestNewReportsMissingOptions(t *testing.T) {
	if _, err := controller.New(controller.Options[sum]{Service: "x"}); !errors.Is(err, errcode.ErrInvalid) {
		t.Errorf("error %v, want Invalid", err)
	}
}

func TestMissingBucketEndsRun(t *testing.T) {
	h := host(t, memory.New().Ports(), func(o *controller.Options[sum]) { o.Bucket = "nowhere" })
	if err := h.Run(t.Context()); !errors.Is(err, errcode.ErrUnavailable) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error %v, want Unavailable that names the bucket", err)
	}
}
