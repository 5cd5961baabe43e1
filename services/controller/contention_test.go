package controller_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/services/controller/controllertest"
)

// slowLog delays each message.
type slowLog struct {
	broker.Log
	delay time.Duration
}

func (l slowLog) Publish(ctx context.Context, m broker.Message) (uint64, error) {
	time.Sleep(l.delay)
	return l.Log.Publish(ctx, m)
}

// TestReplyDoesNotWaitForPublication: it is valid once the decision is stored.
func TestReplyDoesNotWaitForPublication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		slow := p
		slow.Log = slowLog{p.Log, time.Second}
		stop := controllertest.Start(t, host(t, slow, nil).Run)
		synctest.Wait()
		began := time.Now()
		got, err := p.Calls.Call(t.Context(), events.RequestSubject(events.ServiceRegistry, events.VerbJoin), []byte(`{"job":"a","planned":true}`))
		if took := time.Since(began); err != nil || !strings.Contains(string(got), `"proposed":1`) || took >= time.Second {
			t.Errorf("answer %s, %v after %s", got, err, took)
		}
		wantPublished(t, p)
		time.Sleep(2 * time.Second)
		wantPublished(t, p, "scaled 1")
		stop()
	})
}

// contested is a bucket in which another writer is always faster, that many times.
type contested struct {
	broker.Bucket
	losses int
	tries  []time.Time
}

func (b *contested) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	time.Sleep(10 * time.Millisecond)
	if b.tries = append(b.tries, time.Now()); len(b.tries) <= b.losses {
		return 0, errcode.Errorf(errcode.Conflict, "another writer was first")
	}
	return b.Bucket.Save(ctx, key, value, revision)
}

// TestLoserOfConflictsWaits: of two replicas that retry at once, the faster one would win every
// time.
func TestLoserOfConflictsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memory.New().Ports()
		b := &contested{Bucket: p.Buckets.Bucket(events.BucketJobs), losses: 8}
		mine := p
		mine.Buckets = only{b}
		stop := controllertest.Start(t, host(t, mine, nil).Run)
		command(t, p, "1", scale("a", 2))
		time.Sleep(3 * time.Second)
		stop()
		wantPublished(t, p, "scaled 1")
		if len(b.tries) != 9 {
			t.Fatalf("%d tries, want 9", len(b.tries))
		}
		if took := b.tries[8].Sub(b.tries[0]); took <= 80*time.Millisecond {
			t.Errorf("nine tries within %s: it decided again at once", took)
		}
	})
}

// only is one bucket under every name.
type only struct{ b broker.Bucket }

func (o only) Bucket(string) broker.Bucket { return o.b }
