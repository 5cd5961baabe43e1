package jetstream

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

// Buckets have the layout of NATS key-value buckets, so that `nats kv` can read them: one stream
// each, a subject per key, and a deletion is a message with an operation header.
const (
	headerOperation = "KV-Operation"
	operationDelete = "DEL"
	headerTTL       = "Nats-TTL"
)

// tombstoneLife is how long a deletion stays stored. Watchers that were disconnected for longer
// detect it by comparing lists.
const tombstoneLife = time.Hour

type buckets struct{ c *Conn }

// Bucket implements broker.Buckets.
func (b buckets) Bucket(name string) broker.Bucket {
	return bucket{c: b.c, name: name, stream: events.BucketStream(name), prefix: events.BucketSubject(name, "")}
}

type bucket struct {
	c                    *Conn
	name, stream, prefix string
}

var goodKey = regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)

func (b bucket) subject(key string) (string, error) {
	if !goodKey.MatchString(key) || key[0] == '.' || key[len(key)-1] == '.' {
		return "", errcode.Errorf(errcode.Invalid, "bucket %s: %q is no key: use a-z, A-Z, 0-9, '-', '_', '/', '=' and inner '.'", b.name, key)
	}
	return b.prefix + key, nil
}

// Load implements broker.Bucket.
func (b bucket) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	m, err := b.last(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	if removed(m) {
		return nil, 0, errcode.Errorf(errcode.NotFound, "bucket %s has no key %s", b.name, key)
	}
	return value(m), m.Sequence, nil
}

// last reads the newest message of a key, which may be its deletion.
func (b bucket) last(ctx context.Context, key string) (broker.Stored, error) {
	subject, err := b.subject(key)
	if err != nil {
		return broker.Stored{}, err
	}
	m, err := b.c.get(ctx, b.stream, getRequest{LastFor: subject})
	if errors.Is(err, errcode.ErrNotFound) {
		return m, errcode.Errorf(errcode.NotFound, "bucket %s has no key %s", b.name, key)
	}
	return m, err
}

// Save implements broker.Bucket.
func (b bucket) Save(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	subject, err := b.subject(key)
	if err != nil {
		return 0, err
	}
	return b.put(ctx, "save "+key+" in bucket "+b.name, subject, data, nil, revision)
}

// Delete implements broker.Bucket.
func (b bucket) Delete(ctx context.Context, key string, revision uint64) error {
	subject, err := b.subject(key)
	if err != nil {
		return err
	}
	_, err = b.put(ctx, "delete "+key+" from bucket "+b.name, subject, nil, nats.Header{
		headerOperation: []string{operationDelete}, headerTTL: []string{tombstoneLife.String()},
	}, revision)
	return err
}

// busyPauses are the pauses between attempts of a compare-and-set that a busy leader refuses.
var busyPauses = []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

// put stores a message if the key is still at revision.
//
// A refusal is verified before it becomes a conflict, because it can be wrong in two ways. For the
// stream a deleted key is at the revision of its deletion, for broker.Bucket it is absent. And a
// replicated stream refuses (10164) while any proposal for the key is in flight, including its own
// last one: TestConformanceOnThreeServers/bucket/never_stale shows this with a single writer.
func (b bucket) put(ctx context.Context, what, subject string, data []byte, h nats.Header, revision uint64) (uint64, error) {
	expected := revision
	for try := 0; ; try++ {
		h := outgoing(ctx, h)
		h[js.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expected, 10)}
		seq, err := b.c.store(ctx, what, &nats.Msg{Subject: subject, Header: h, Data: data})
		busy := refusedWith(err, js.JSErrCodeStreamWrongLastSequenceConstant)
		if err == nil || !errors.Is(err, errcode.ErrConflict) || (!busy && revision != 0) {
			return seq, err
		}
		last, at := b.c.get(ctx, b.stream, getRequest{LastFor: subject})
		switch {
		case at != nil && !errors.Is(at, errcode.ErrNotFound):
			return 0, at // nothing was stored, but there may be no other writer
		case last.Sequence == expected && !busy:
			return 0, err
		case last.Sequence != expected && (revision != 0 || !removed(last)):
			return 0, err // it is another writer's
		}
		expected = last.Sequence
		if try == len(busyPauses) || !b.c.state.pause(ctx, busyPauses[try]) {
			return 0, errcode.Errorf(errcode.Unavailable, "%s: refused repeatedly by a busy stream without a conflict", what)
		}
	}
}

// refusedWith reports whether the server has refused with one of the codes.
func refusedWith(err error, codes ...js.ErrorCode) bool {
	api, ok := errors.AsType[*js.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode)
}

func removed(m broker.Stored) bool { return broker.HeaderValue(m.Header, headerOperation) != "" }

// value returns a non-nil slice, so that an empty value differs from none.
func value(m broker.Stored) []byte {
	if m.Data == nil {
		return []byte{}
	}
	return m.Data
}

// Watch implements broker.Bucket. After an interruption it passes only the differences to fn.
func (b bucket) Watch(ctx context.Context, fn func(key string, value []byte, revision uint64), listed func()) error {
	w := watching{b: b, fn: fn, listed: listed, known: map[string]uint64{}}
	return b.c.repeat(ctx, "watch bucket "+b.name, w.run)
}

// watching is the state of one Watch.
type watching struct {
	b            bucket
	fn           func(key string, value []byte, revision uint64)
	listed       func()
	listedCalled bool              // listed was called
	known        map[string]uint64 // present keys that were passed to fn, with their revision
	newest       uint64            // highest revision passed to fn; an older one is out of date
	created      time.Time         // of the stream that the revisions belong to
}

func (w *watching) run(ctx context.Context) error {
	info, err := w.b.c.streamInfo(ctx, w.b.stream)
	if err != nil {
		return err
	}
	if !info.Created.Equal(w.created) || info.State.LastSeq < w.newest {
		w.newest = 0 // another bucket of this name, or an old copy of it: its revisions start again
	}
	w.created = info.Created
	seen, listing := map[string]bool{}, true
	return w.b.c.read(ctx, reading{stream: w.b.stream, subjects: []string{w.b.prefix + ">"}, lasts: true}, func(m broker.Stored) error {
		key := strings.TrimPrefix(m.Subject, w.b.prefix)
		if listing {
			seen[key] = true
		}
		w.deliver(key, m)
		return nil
	}, func() error {
		listing = false
		if err := w.compare(ctx, seen, info.State.LastSeq); err != nil {
			return err
		}
		if !w.listedCalled {
			if err := w.complete(ctx, seen); err != nil {
				return err
			}
		}
		if !w.listedCalled && w.listed != nil {
			w.listed()
		}
		w.listedCalled = true
		return nil
	})
}

func (w *watching) deliver(key string, m broker.Stored) {
	if m.Sequence <= w.newest {
		return
	}
	w.newest = m.Sequence
	at, present := w.known[key]
	switch {
	case present && at == m.Sequence: // complete has passed it on
	case !removed(m):
		w.known[key] = m.Sequence
		w.fn(key, value(m), m.Sequence)
	case present:
		delete(w.known, key)
		w.fn(key, nil, m.Sequence)
	}
}

// compare finds the keys that were deleted during an interruption and whose deletion is not stored
// any more. A key that the leader still has was written after the list was begun: it arrives by
// itself.
func (w *watching) compare(ctx context.Context, seen map[string]bool, at uint64) error {
	for _, key := range slices.Sorted(maps.Keys(w.known)) {
		if seen[key] {
			continue
		}
		_, err := w.b.last(ctx, key)
		switch {
		case errors.Is(err, errcode.ErrNotFound):
			delete(w.known, key)
			w.fn(key, nil, max(at, 1))
		case err != nil:
			return err
		}
	}
	return nil
}

// complete passes on the keys that the list lacks. They were written while it was read: their
// message in the list is gone then, and the newer one arrives after the list's end. Or the server
// that lists is behind the stream's leader, or ahead of it: positions of the two say nothing about
// each other.
func (w *watching) complete(ctx context.Context, seen map[string]bool) error {
	now, err := w.b.c.streamInfo(ctx, w.b.stream, js.WithSubjectFilter(w.b.prefix+">"))
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(now.State.Subjects)) {
		key := strings.TrimPrefix(subject, w.b.prefix)
		if seen[key] {
			continue
		}
		m, err := w.b.last(ctx, key)
		switch {
		case errors.Is(err, errcode.ErrNotFound):
		case err != nil:
			return err
		case !removed(m): // newest stays: others that were written before it have yet to arrive, and this one arrives again and is skipped
			w.known[key] = m.Sequence
			w.fn(key, value(m), m.Sequence)
		}
	}
	return nil
}
