package memory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
)

// within runs test in virtual time and ends what was begun with start.
func within(t *testing.T, test func(t *testing.T, bus *memory.Bus, start func(func(ctx context.Context) error))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		test(t, memory.New(), func(run func(ctx context.Context) error) {
			wg.Go(func() {
				if err := run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			})
			synctest.Wait()
		})
		cancel()
		wg.Wait()
	})
}

func fact(kind string) broker.Message {
	return broker.Message{Subject: events.FactSubject(events.Type("dev.regroup.job."+kind+".v1"), "job"), ID: kind, Data: []byte(kind)}
}

func TestRedeliveryIsExactInVirtualTime(t *testing.T) {
	within(t, func(t *testing.T, bus *memory.Bus, start func(func(ctx context.Context) error)) {
		begin, p := time.Now(), bus.Ports()
		var at []time.Duration
		start(func(ctx context.Context) error {
			c := broker.Consumer{Stream: events.StreamFacts, Durable: "d", Subjects: []string{events.AllFacts}, AckWait: 2 * time.Second}
			return p.Log.Consume(ctx, c, func(d broker.Delivery) {
				at = append(at, time.Since(begin))
				switch d.Attempt {
				case 1: // neither settled nor extended
				case 2:
					d.Retry(time.Minute)
				case 3:
					d.Ack()
				}
			})
		})
		if _, err := p.Log.Publish(t.Context(), fact("a")); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour) // virtual
		synctest.Wait()
		if len(at) != 3 || at[0] != 0 || at[1] != 2*time.Second || at[2] != 62*time.Second {
			t.Errorf("delivered at %v, want 0s, 2s, 1m2s", at)
		}
	})
}

func TestDeduplicationForgetsAfterItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		var seqs []uint64
		for range 3 {
			seq, err := p.Log.Publish(t.Context(), fact("a"))
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, seq)
			<-time.After(90 * time.Second) // virtual
		}
		if seqs[0] != seqs[1] || seqs[2] == seqs[1] {
			t.Errorf("positions %v: want the second as the first, the third (3 minutes on) stored anew", seqs)
		}
	})
}

func TestDroppedSignalsAndLaunches(t *testing.T) {
	within(t, func(t *testing.T, bus *memory.Bus, start func(func(ctx context.Context) error)) {
		p := bus.Ports()
		var received, launched []string
		start(func(ctx context.Context) error {
			return p.Signals.Hear(ctx, events.AllNotices, "", func(_ string, data []byte) { received = append(received, string(data)) }, nil)
		})
		start(func(ctx context.Context) error {
			return p.Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject("node-a", "*"), func(s broker.Stored) {
				launched = append(launched, string(s.Data))
			})
		})
		send := func(s string) {
			if err := p.Signals.Send(events.NoticeSubject("job"), []byte(s)); err != nil {
				t.Error(err)
			}
			if _, err := p.Log.Publish(t.Context(), broker.Message{Subject: events.LaunchSubject("node-a", "job"), Data: []byte(s)}); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		bus.DropSignals(func(string) bool { return true })
		send("lost")
		bus.DropSignals(nil)
		send("heard")
		if len(received) != 1 || received[0] != "heard" || len(launched) != 1 || launched[0] != "heard" {
			t.Errorf("heard %q and launches %q, want the second of each alone", received, launched)
		}
		bus.Disconnect()
		bus.Connect()
		synctest.Wait()
		if len(launched) != 2 {
			t.Errorf("launches %q: the last one must be heard again after a reconnect", launched)
		}
	})
}

func TestFailedSaves(t *testing.T) {
	bus := memory.New()
	b := bus.Ports().Buckets.Bucket(events.BucketJobs)
	refused := errcode.Errorf(errcode.Unavailable, "no leader")
	bus.FailSaves(func(bucket, key string) (bool, error) {
		if bucket != events.BucketJobs {
			t.Errorf("asked about bucket %q", bucket)
		}
		return key == "stored", refused
	})
	for key, stored := range map[string]bool{"stored": true, "refused": false} {
		if _, err := b.Save(t.Context(), key, []byte("x"), 0); !errors.Is(err, refused) {
			t.Errorf("save of %s: %v, want the given error", key, err)
		}
		if _, _, err := b.Load(t.Context(), key); (err == nil) != stored {
			t.Errorf("load of %s: %v, want stored = %v", key, err, stored)
		}
	}
	bus.FailSaves(nil)
	if _, err := b.Save(t.Context(), "refused", []byte("x"), 0); err != nil {
		t.Error(err)
	}
}

func TestFailedPublishes(t *testing.T) {
	p := func() broker.Ports {
		bus := memory.New()
		bus.FailPublishes(func(string) (bool, error) { return true, nil })
		return bus.Ports()
	}()
	if _, err := p.Log.Publish(t.Context(), fact("a")); !errors.Is(err, errcode.ErrUnavailable) {
		t.Errorf("publish: %v, want unavailable", err)
	}
	if _, err := p.Log.Last(t.Context(), events.StreamFacts, fact("a").Subject); err != nil {
		t.Errorf("it must be stored although its acknowledgement was lost: %v", err)
	}
}

func TestOneClientDisconnected(t *testing.T) {
	within(t, func(t *testing.T, bus *memory.Bus, start func(func(ctx context.Context) error)) {
		here, there := bus.Client(), bus.Client()
		var changes []string
		start(func(ctx context.Context) error {
			return there.Ports().Buckets.Bucket(events.BucketJobs).Watch(ctx, func(k string, v []byte, _ uint64) {
				changes = append(changes, k+"="+string(v))
			}, nil)
		})
		there.Disconnect()
		if _, _, err := there.Ports().Buckets.Bucket(events.BucketJobs).Load(t.Context(), "a"); !errors.Is(err, errcode.ErrUnavailable) {
			t.Errorf("load while cut off: %v, want unavailable", err)
		}
		rev := uint64(0)
		for _, v := range []string{"1", "2"} {
			var err error
			if rev, err = here.Ports().Buckets.Bucket(events.BucketJobs).Save(t.Context(), "a", []byte(v), rev); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(changes) != 0 {
			t.Errorf("saw %q while cut off", changes)
		}
		there.Connect()
		synctest.Wait()
		if len(changes) != 1 || changes[0] != "a=2" {
			t.Errorf("saw %q after the reconnect, want the newest value", changes)
		}
	})
}

func TestAcknowledgementLostWhileDisconnected(t *testing.T) {
	within(t, func(t *testing.T, bus *memory.Bus, start func(func(ctx context.Context) error)) {
		p, attempts := bus.Ports(), 0
		start(func(ctx context.Context) error {
			c := broker.Consumer{Stream: events.StreamFacts, Durable: "d", Subjects: []string{events.AllFacts}}
			return p.Log.Consume(ctx, c, func(d broker.Delivery) {
				if attempts++; attempts == 1 {
					bus.Disconnect()
				}
				d.Ack()
			})
		})
		if _, err := p.Log.Publish(t.Context(), fact("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		bus.Connect()
		<-time.After(time.Minute) // virtual
		synctest.Wait()
		if attempts != 2 {
			t.Errorf("delivered %d times, want again once after the acknowledgement was lost", attempts)
		}
	})
}

// TestInterceptorLosesRequestsAndAnswers: a request that is not executed has no effect, and one
// whose answer is lost has.
func TestInterceptorLosesRequestsAndAnswers(t *testing.T) {
	var changes []string
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	bus := memory.NewWith(memory.Options{
		Now:    func() time.Time { return now },
		Stored: func(stream string, m broker.Stored) { changes = append(changes, stream+" "+string(m.Data)) },
		Changed: func(bucket, key string, value []byte, _ uint64) {
			changes = append(changes, bucket+" "+key+"="+string(value))
		},
		Sent: func(_ string, data []byte) { changes = append(changes, "signal "+string(data)) },
	})
	lost := errors.New("lost")
	var before, after bool
	p := bus.Intercepted(func(_ memory.Operation, execute func() error) error {
		if before {
			return lost
		}
		if err := execute(); err != nil || !after {
			return err
		}
		return lost
	}).Ports()
	jobs := p.Buckets.Bucket(events.BucketJobs)
	everything := func() (errs []error) {
		_, err := jobs.Save(t.Context(), "a", []byte("1"), 0)
		errs = append(errs, err)
		_, err = p.Log.Publish(t.Context(), fact("x"))
		errs = append(errs, err)
		_, _, err = jobs.Load(t.Context(), "a")
		errs = append(errs, err)
		_, err = p.Log.Last(t.Context(), events.StreamFacts, fact("x").Subject)
		errs = append(errs, err)
		at, err := p.Clock.Now(t.Context())
		if err == nil && !at.Equal(now) {
			t.Errorf("the clock says %s", at)
		}
		errs = append(errs, err, jobs.Delete(t.Context(), "a", 1), p.Signals.Send("s", []byte("x")))
		return errs
	}
	before = true
	errs := everything()
	if len(changes) != 0 {
		t.Errorf("requests that were lost have stored %q", changes)
	}
	before, after = false, true
	errs = append(errs, everything()...)
	for i, err := range errs {
		if signal := i%7 == 6; signal != (err == nil) || !signal && !errors.Is(err, lost) {
			t.Errorf("answer %d is %v", i, err)
		}
	}
	if want := []string{"jobs a=1", "REGROUP_EVT x", "jobs a=", "signal x"}; !slices.Equal(changes, want) {
		t.Errorf("stored %q, want %q", changes, want)
	}
}
