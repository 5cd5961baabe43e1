package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/memory"
)

// dedup is the deduplication window of a stream. It is much shorter than a broker's, so that
// nothing relies on it.
const dedup = 3 * time.Second

// newBroker returns the broker of a world. What it stores reaches replicas and agents after a hop.
func newBroker(w *world) *memory.Bus {
	return memory.NewWith(memory.Options{
		Now: func() time.Time { return w.now }, Dedup: dedup,
		Stored: w.stored, Changed: w.changed, Sent: w.signal,
	})
}

// stored checks a message and delivers it to every consumer, or to its node.
func (w *world) stored(stream string, m events.Stored) {
	if stream == events.StreamLaunches {
		w.launched(m)
		return
	}
	e, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		w.check.fail(0, "message on %s does not decode: %v", m.Subject, err)
		return
	}
	if stream == events.StreamFacts {
		w.check.fact(e)
	}
	for _, d := range w.durables {
		if d.consumer.Stream == stream && access.Permits(d.consumer.Subjects, m.Subject) {
			d.carry(&delivery{durable: d, stored: m, event: e}, w.hop())
		}
	}
}

// changed checks a document's new value and delivers it to the watches of its service.
func (w *world) changed(bucket, key string, value []byte, revision uint64) {
	w.check.saved(bucket, key, value)
	for _, s := range events.Services() {
		if s.Bucket != bucket {
			continue
		}
		for _, v := range w.services[s.Name] {
			w.after(w.hop(), func() { v.changed(key, value, revision) })
		}
	}
}

// publish publishes what an agent or a client sends.
func (w *world) publish(m events.Message) {
	if _, err := w.broker.Ports().Log.Publish(context.Background(), m); err != nil {
		w.check.fail(0, "message on %s: %v", m.Subject, err)
	}
}

// record is one entry of a bucket.
type record struct {
	key      string
	value    []byte
	revision uint64
}

// documents lists a bucket by key.
func (w *world) documents(bucket string) []record {
	var all []record
	ctx, cancel := context.WithCancel(context.Background())
	_ = w.broker.Ports().Buckets.Bucket(bucket).Watch(ctx, func(key string, value []byte, revision uint64) {
		all = append(all, record{key, value, revision})
	}, cancel) // ends with the list
	slices.SortFunc(all, func(a, b record) int { return strings.Compare(a.key, b.key) })
	return all
}
