package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
)

// store is shared by all replicas: documents with compare-and-set, and streams.
type store struct {
	w        *world
	buckets  map[string]map[string]record
	revision uint64
	streams  map[string]*stream
	durables []*durable
}

type record struct {
	value    []byte // nil = removed
	revision uint64
}

// stream keeps what was published; launches replace each other in last.
type stream struct {
	seq  uint64
	last map[string]events.Stored // by subject, and for facts by family and entity
	ids  map[string]time.Time
}

// dedup is the deduplication window of a stream. It is much shorter than a broker's, so that
// nothing relies on it.
const dedup = 3 * time.Second

func newStore(w *world) *store {
	s := &store{w: w, buckets: map[string]map[string]record{}, streams: map[string]*stream{}}
	for _, service := range events.Services() {
		s.buckets[service.Bucket] = map[string]record{}
	}
	for _, n := range []string{events.StreamCommands, events.StreamFacts, events.StreamLaunches} {
		s.streams[n] = &stream{last: map[string]events.Stored{}, ids: map[string]time.Time{}}
	}
	return s
}

func streamOf(subject string) string {
	switch strings.Split(subject, ".")[1] {
	case "cmd":
		return events.StreamCommands
	case "evt":
		return events.StreamFacts
	}
	return events.StreamLaunches
}

// keys lists the keys of a bucket, sorted.
func (s *store) keys(bucket string) []string {
	var keys []string
	for k, r := range s.buckets[bucket] {
		if r.value != nil {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// change stores a document's new value; nil removes it.
func (s *store) change(bucket, key string, value []byte) uint64 {
	s.revision++
	r := record{value: slices.Clone(value), revision: s.revision}
	s.buckets[bucket][key] = r
	s.w.check.saved(bucket, key, r.value)
	for _, service := range events.Services() {
		if service.Bucket != bucket {
			continue
		}
		for _, v := range s.w.services[service.Name] {
			s.w.after(s.w.hop(), func() { v.changed(key, r) })
		}
	}
	return r.revision
}

// publish stores a message and delivers it to every consumer.
func (s *store) publish(m events.Message) uint64 {
	name := streamOf(m.Subject)
	st := s.streams[name]
	if at, known := st.ids[m.ID]; known && m.ID != "" && s.w.now.Sub(at) < dedup {
		return st.seq
	}
	st.ids[m.ID] = s.w.now
	st.seq++
	stored := events.Stored{Subject: m.Subject, Header: m.Header, Data: slices.Clone(m.Data), Sequence: st.seq, Time: s.w.now}
	before := st.last[m.Subject]
	st.last[m.Subject] = stored
	if name == events.StreamLaunches {
		s.w.launched(stored, before)
		return st.seq
	}
	e, err := cloudevent.Decode(m.Header, m.Data)
	if err != nil {
		s.w.check.fail(0, "message on %s does not decode: %v", m.Subject, err)
		return st.seq
	}
	if name == events.StreamFacts {
		family := strings.Split(m.Subject, ".")[2]
		st.last[family+"/"+events.EntityOfFact(m.Subject)] = stored
		st.last[family+"/*"] = stored
		s.w.check.fact(e)
	}
	for _, d := range s.durables {
		if d.consumer.Stream == name && d.wants(m.Subject) {
			d.carry(&delivery{durable: d, stored: stored, event: e}, s.w.hop())
		}
	}
	return st.seq
}

// newest finds the last message on a subject, or on a family's subjects of an entity.
func (s *store) newest(name, subject string) (events.Stored, bool) {
	if parts := strings.Split(subject, "."); len(parts) == 5 && parts[4] == ">" {
		subject = parts[2] + "/" + parts[3]
	}
	m, ok := s.streams[name].last[subject]
	return m, ok
}
