// Package controllertest helps to test services: it runs a replica, publishes its inputs, stores
// the records of other services, and reads the published facts.
package controllertest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/document"
	"github.com/regroup-io/regroup/events/errcode"
)

// Start runs a replica inside a synctest bubble until stop is called. Then run must return nil
// without waiting for a timer.
func Start(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("Run has not returned")
		}
	}
}

// PublishEvent publishes a fact or a command that happens now. The source of a fact is the service
// that writes it.
func PublishEvent(t testing.TB, p broker.Ports, e events.Event) {
	t.Helper()
	e.Time = time.Now()
	e.Source = Source(e)
	m, err := cloudevent.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	Publish(t, p, m)
}

// Source returns the source of the service that writes a fact, and for others that of the event.
func Source(e events.Event) string {
	switch row, _ := events.EntryOf(e.Body.Type()); {
	case row.Class != events.ClassFact:
		return e.Source
	case row.Writer == events.ServiceAgent:
		return events.AgentSource("node-a", "test")
	default:
		return events.ServiceSource(row.Writer)
	}
}

// Publish publishes a message that need not be an event.
func Publish(t testing.TB, p broker.Ports, m broker.Message) {
	t.Helper()
	if _, err := p.Log.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// Facts formats every fact in the log with line, oldest first, separated by commas. With subjects
// it selects the facts under these.
func Facts(t testing.TB, p broker.Ports, line func(events.Event) string, subjects ...string) string {
	t.Helper()
	if len(subjects) == 0 {
		subjects = []string{events.AllFacts}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out []string
	_ = p.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: subjects, Start: broker.FromFirst}, func(s broker.Stored) error {
		e, err := cloudevent.Decode(s.Header, s.Data)
		if err != nil {
			t.Errorf("fact %s: %v", s.Subject, err)
			return nil
		}
		out = append(out, line(e))
		return nil
	}, cancel)
	return strings.Join(out, ", ")
}

// families are the fact families of the services that write the buckets.
var families = map[string]events.Family{
	events.BucketNodes: events.FamilyNode, events.BucketPlacements: events.FamilyPlacement,
	events.BucketRounds: events.FamilyRound, events.BucketJobs: events.FamilyJob,
}

// Record stores a document with a view and no other state, as of a service that has published so
// many facts.
func Record(t testing.TB, p broker.Ports, bucket, key string, number uint64, view any) {
	t.Helper()
	state, err := json.Marshal(map[string]any{"view": view})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := document.Encode(document.Document{
		Schema: document.Schema, Version: max(number, 1), State: state, Number: map[events.Family]uint64{families[bucket]: number},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := p.Buckets.Bucket(bucket)
	_, revision, err := b.Load(t.Context(), key)
	if err != nil && errcode.Of(err) != errcode.NotFound {
		t.Fatal(err)
	}
	if _, err := b.Save(t.Context(), key, doc, revision); err != nil {
		t.Fatal(err)
	}
}

// View reads the public view of an entity.
func View[V any](t testing.TB, p broker.Ports, bucket, key string) V {
	t.Helper()
	value, _, err := p.Buckets.Bucket(bucket).Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := document.View[V](value)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Reload encodes and decodes a state, as the controller may between any two steps.
func Reload[S any](t testing.TB, s S) (out S) {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("the state cannot be stored: %v", err)
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("the state cannot be read back: %v", err)
	}
	return out
}

// Answer is what a broker stores for a client that names the subject of a document for the answer
// to a request: JSON that is no document.
const Answer = `{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"REGROUP_EVT"},"state":{"messages":7,"view":{}}}`

// Overwrite replaces a document by something else, and returns it as it was.
func Overwrite(t testing.TB, p broker.Ports, bucket, key, by string) (was []byte) {
	t.Helper()
	b := p.Buckets.Bucket(bucket)
	was, revision, err := b.Load(t.Context(), key)
	if err != nil && errcode.Of(err) != errcode.NotFound {
		t.Fatal(err)
	}
	if _, err := b.Save(t.Context(), key, []byte(by), revision); err != nil {
		t.Fatal(err)
	}
	return was
}
