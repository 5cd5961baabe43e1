package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
)

type bucket struct {
	bus      *Bus
	name     string
	revision uint64 // of the bucket: incremented by each change
	entries  map[string]entry
	watchers []*bucketWatcher
}

type entry struct {
	key      string
	value    []byte // nil = removed; the revision stays, like the delete marker in NATS
	revision uint64
}

type bucketWatcher struct {
	*mailbox[entry]
	seen uint64 // revision up to which changes were delivered
}

func (k *bucket) change(key string, value []byte) uint64 {
	k.revision++
	e := entry{key, value, k.revision}
	k.entries[key] = e
	if observe := k.bus.o.Changed; observe != nil {
		k.bus.changes = append(k.bus.changes, func() { observe(k.name, key, value, e.revision) })
	}
	for _, w := range k.watchers {
		if !w.client.down {
			w.seen = e.revision
			w.push(e)
		}
	}
	return k.revision
}

// since returns the changes above a revision in order, the newest of each key.
func (k *bucket) since(revision uint64) []entry {
	var out []entry
	for _, e := range k.entries {
		if e.revision > revision {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return out
}

// resync delivers to a client's watchers what they have missed while it was disconnected.
func (k *bucket) resync(c *Client) {
	for _, w := range k.watchers {
		if w.client == c {
			w.push(k.since(w.seen)...)
			w.seen = k.revision
		}
	}
}

type buckets struct{ *Client }

// Bucket implements broker.Buckets.
func (b buckets) Bucket(name string) broker.Bucket { return opened{b.Client, name} }

type opened struct {
	*Client
	name string
}

func (o opened) request(ctx context.Context, op Operation, execute func(*bucket) error) error {
	return o.do(op, func() error {
		if err := o.ready(ctx); err != nil {
			return err
		}
		k, err := o.find()
		if err != nil {
			return err
		}
		return execute(k)
	})
}

func (o opened) find() (*bucket, error) {
	k := o.bus.buckets[o.name]
	if k == nil {
		return nil, errcode.Errorf(errcode.Unavailable, "there is no bucket %q", o.name)
	}
	return k, nil
}

// Load implements broker.Bucket.
func (o opened) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	var e entry
	err := o.request(ctx, Load, func(k *bucket) error {
		if e = k.entries[key]; e.value == nil {
			return errcode.Errorf(errcode.NotFound, "no %q in bucket %s", key, o.name)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return bytes.Clone(e.value), e.revision, nil
}

// compare returns an error unless the key is still at revision; 0 = absent.
func (k *bucket) compare(key string, revision uint64) error {
	e := k.entries[key]
	if e.revision == revision || e.value == nil && revision == 0 {
		return nil
	}
	return errcode.Errorf(errcode.Conflict, "%q in bucket %s is at revision %d, not %d", key, k.name, e.revision, revision)
}

// Save implements broker.Bucket.
func (o opened) Save(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := checkSize(len(value)); err != nil {
		return 0, err
	}
	var at uint64
	err := o.request(ctx, Save, func(k *bucket) error {
		if err := k.compare(key, revision); err != nil {
			return err
		}
		store, answer := true, error(nil)
		if o.bus.failSaves != nil {
			store, answer = faultResult(o.bus.failSaves(o.name, key))
		}
		if store {
			at = k.change(key, append([]byte{}, value...))
		}
		return answer
	})
	return at, err
}

// Delete implements broker.Bucket.
func (o opened) Delete(ctx context.Context, key string, revision uint64) error {
	return o.request(ctx, Delete, func(k *bucket) error {
		if err := k.compare(key, revision); err != nil {
			return err
		}
		k.change(key, nil)
		return nil
	})
}

// Watch implements broker.Bucket.
func (o opened) Watch(ctx context.Context, fn func(key string, value []byte, revision uint64), listed func()) error {
	w := &bucketWatcher{mailbox: newMailbox[entry](o.Client)}
	var k *bucket
	var present []entry
	var leave func()
	err := o.do(Watch, func() error {
		var err error
		if k, err = o.find(); err != nil {
			return err
		}
		leave = register(o.bus, &k.watchers, w)
		present = slices.DeleteFunc(k.since(0), func(e entry) bool { return e.value == nil })
		w.seen = k.revision
		return nil
	})
	if k == nil {
		return err
	}
	defer leave()
	if err != nil {
		return err
	}
	for _, e := range present {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fn(e.key, bytes.Clone(e.value), e.revision)
	}
	if listed != nil {
		listed()
	}
	return w.drain(ctx, func(e entry) { fn(e.key, bytes.Clone(e.value), e.revision) })
}
