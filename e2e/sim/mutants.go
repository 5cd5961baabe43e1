package sim

import (
	"context"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/document"
)

// mutantLog is the log of a controller with a bug.
type mutantLog struct {
	events.Log
	mutant mutation
}

func (l mutantLog) Last(ctx context.Context, stream, subject string) (events.Stored, error) {
	m, err := l.Log.Last(ctx, stream, subject)
	if err == nil && l.mutant.trustful {
		return events.Stored{}, events.Errorf(events.NotFound, "nothing on %s", subject)
	}
	return m, err
}

// mutantBuckets are the buckets of a controller with a bug.
type mutantBuckets struct {
	events.Buckets
	w *world
}

func (b mutantBuckets) Bucket(name string) events.Bucket {
	return mutantBucket{b.Buckets.Bucket(name), name, b.w}
}

type mutantBucket struct {
	events.Bucket
	name string
	w    *world
}

func (b mutantBucket) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	value, revision, err := b.Bucket.Load(ctx, key)
	return b.w.stripped(value), revision, err
}

func (b mutantBucket) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	at, err := b.Bucket.Save(ctx, key, value, revision)
	for b.w.mutant.careless && events.CodeOf(err) == events.Conflict {
		_, revision, _ = b.w.broker.Ports().Buckets.Bucket(b.name).Load(ctx, key) // absent = 0
		at, err = b.Bucket.Save(ctx, key, value, revision)
	}
	return at, err
}

// stripped is a document as the replicas of a broken controller see it.
func (w *world) stripped(value []byte) []byte {
	if !w.mutant.forgetful && !w.mutant.amnesic || value == nil {
		return value
	}
	d, err := document.Decode(value)
	if err != nil {
		return value
	}
	if w.mutant.forgetful {
		d.Outbox, d.Elided = nil, nil
	}
	if w.mutant.amnesic {
		d.Applied = nil
	}
	if out, err := document.Encode(d); err == nil {
		return out
	}
	return value
}
