package jetstream_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
)

var operations = flag.Int("operations", 60, "operations of each client before, during and after the loss of a server")

// deed is one call on a bucket with its result.
type deed struct {
	key, verb string // load, save, delete
	value     string // to store, or loaded; every stored value is unique
	expected  uint64
	revision  uint64 // loaded, or of the stored value
	code      errcode.Code
}

// document is a key's state in the model. The revision of an unanswered write is set by the first
// load.
type document struct {
	value    string // empty = there is none
	revision uint64 // 0 = not known yet
}

// documents models a bucket: a register with compare-and-set for each key. An unanswered call may
// have taken effect at any time after it, or never.
func documents() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			keys := map[string][]porcupine.Operation{}
			for _, o := range history {
				keys[o.Input.(deed).key] = append(keys[o.Input.(deed).key], o)
			}
			var parts [][]porcupine.Operation
			for _, p := range keys {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() []any { return []any{document{}} },
		Step: func(state, _, output any) []any {
			s, d := state.(document), output.(deed)
			if d.verb == "load" {
				switch {
				case d.code != "" && d.code != errcode.NotFound:
					return []any{s} // it has no effect
				case d.value != s.value, s.revision != 0 && d.revision != s.revision && d.value != "":
					return nil
				}
				return []any{document{d.value, d.revision}}
			}
			next := document{d.value, d.revision}
			fits := d.expected == s.revision && (d.expected != 0 || s.value == "")
			switch d.code {
			case "":
				if fits {
					return []any{next}
				}
				return nil
			case errcode.Conflict:
				if fits {
					return nil
				}
				return []any{s}
			}
			if fits {
				return []any{s, next}
			}
			return []any{s}
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(_, output any) string { return fmt.Sprintf("%+v", output) },
	}).ToModel()
}

// recorder records calls and results as the clients see them.
type recorder struct {
	mu      sync.Mutex
	began   time.Time
	history []porcupine.Operation
	unknown int
}

func (s *recorder) note(client int, call time.Time, d deed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Since(s.began).Nanoseconds()
	if d.code != "" && d.code != errcode.Conflict && d.code != errcode.NotFound && d.verb != "load" {
		until = math.MaxInt64
		s.unknown++
	}
	s.history = append(s.history, porcupine.Operation{ClientId: client, Input: d, Call: call.Sub(s.began).Nanoseconds(), Output: d, Return: until})
}

// TestDocumentsAreLinearizable: clients of all three servers read, compare-and-set and delete the
// same keys, while the bucket's leader is stopped and restarted.
func TestDocumentsAreLinearizable(t *testing.T) {
	t.Parallel()
	const clients, keys = 6, 3
	s := jetstreamtest.Three(t)
	log := &recorder{began: time.Now()}
	var made atomic.Int64
	buckets := make([]broker.Bucket, clients)
	for i := range buckets {
		buckets[i] = s.Connect(t, nil).Ports().Buckets.Bucket(events.BucketRounds)
	}
	// work performs a number of operations per client, of which some must succeed.
	work := func() {
		var wg sync.WaitGroup
		for i, b := range buckets {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(made.Load())))
				known := map[string]uint64{}
				good := 0
				end := time.Now().Add(jetstreamtest.Patience)
				for n := 0; (n < *operations || good < *operations/4) && time.Now().Before(end); n++ {
					d := deed{key: fmt.Sprint("job-", r.IntN(keys))}
					d.expected = known[d.key]
					limit := 300 * time.Millisecond
					if r.IntN(6) == 0 {
						limit = time.Millisecond // cancelled while it is in flight
					}
					ctx, cancel := context.WithTimeout(context.Background(), limit)
					call := time.Now()
					var err error
					var data []byte
					switch draw := r.IntN(10); {
					case draw < 4:
						d.verb = "load"
						data, d.revision, err = b.Load(ctx, d.key)
						d.value = string(data)
						known[d.key] = d.revision
					case draw < 9 || d.expected == 0:
						d.verb, d.value = "save", fmt.Sprint(i, "/", made.Add(1))
						if d.revision, err = b.Save(ctx, d.key, []byte(d.value), d.expected); err == nil {
							known[d.key] = d.revision
						}
					default:
						d.verb = "delete"
						if err = b.Delete(ctx, d.key, d.expected); err == nil {
							known[d.key] = 0
						}
					}
					cancel()
					d.code = errcode.Of(err)
					log.note(i, call, d)
					if err == nil {
						good++
					}
				}
			})
		}
		wg.Wait()
	}
	work()
	leader := s.Leader(t, "KV_"+events.BucketRounds)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(leader)
	}()
	work()
	<-stopped
	s.Start(t, leader)
	work()

	codes := map[errcode.Code]int{}
	for _, o := range log.history {
		codes[o.Output.(deed).code]++
	}
	t.Logf("%d operations in %v by code %v, outcome unknown of %d", len(log.history), time.Since(log.began).Round(time.Millisecond), codes, log.unknown)
	result, info := porcupine.CheckOperationsVerbose(documents(), log.history, jetstreamtest.Patience)
	if result != porcupine.Ok {
		t.Errorf("the history is %s; for each key, what follows on as much of it as is possible:", result)
		explain(t, log.history, info)
	}
	if codes[""] == 0 || codes[errcode.Conflict] == 0 {
		t.Error("the history proves nothing: no success or no conflict")
	}
}

// explain shows where the longest linearization of a key's history ends, and the concurrent calls.
func explain(t *testing.T, history []porcupine.Operation, info porcupine.LinearizationInfo) {
	for _, orders := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, o := range orders {
			if len(o) > len(longest) {
				longest = o
			}
		}
		if len(longest) == 0 {
			continue
		}
		done := map[porcupine.Operation]bool{}
		for _, o := range longest {
			done[o] = true
		}
		key := longest[0].Input.(deed).key
		for _, o := range longest[max(0, len(longest)-8):] {
			t.Logf("%s: client %d %d-%d %+v", key, o.ClientId, o.Call, o.Return, o.Output)
		}
		left := slices.DeleteFunc(slices.Clone(history), func(o porcupine.Operation) bool { return done[o] || o.Input.(deed).key != key })
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range left[:min(len(left), 12)] {
			t.Logf("%s, left: client %d %d-%d %+v", key, o.ClientId, o.Call, o.Return, o.Output)
		}
	}
}

// TestModelOfDocuments: a history that a bucket must not produce is refused, one with an unknown
// outcome is not.
func TestModelOfDocuments(t *testing.T) {
	op := func(call, until int64, d deed) porcupine.Operation {
		d.key = "job-a"
		return porcupine.Operation{Input: d, Call: call, Output: d, Return: until}
	}
	first := op(0, 1, deed{verb: "save", value: "one", revision: 1})
	second := op(2, 3, deed{verb: "save", value: "two", expected: 1, revision: 2})
	open := op(2, math.MaxInt64, deed{verb: "save", value: "two", expected: 1, code: errcode.Unavailable})
	for name, c := range map[string]struct {
		history []porcupine.Operation
		ok      bool
	}{
		"two steps":                         {[]porcupine.Operation{first, second}, true},
		"a stale read":                      {[]porcupine.Operation{first, second, op(4, 5, deed{verb: "load", value: "one", revision: 1})}, false},
		"two winners":                       {[]porcupine.Operation{first, second, op(2, 3, deed{verb: "save", value: "three", expected: 1, revision: 3})}, false},
		"a conflict without another writer": {[]porcupine.Operation{first, op(2, 3, deed{verb: "save", value: "two", expected: 1, code: errcode.Conflict})}, false},
		"open, has happened":                {[]porcupine.Operation{first, open, op(4, 5, deed{verb: "load", value: "two", revision: 2})}, true},
		"open, has not happened":            {[]porcupine.Operation{first, open, op(4, 5, deed{verb: "load", value: "one", revision: 1})}, true},
		"open, happens and is undone":       {[]porcupine.Operation{first, open, op(4, 5, deed{verb: "load", value: "two", revision: 2}), op(6, 7, deed{verb: "load", value: "one", revision: 1})}, false},
		"deleted and there":                 {[]porcupine.Operation{first, op(2, 3, deed{verb: "delete", expected: 1}), op(4, 5, deed{verb: "load", value: "one", revision: 1})}, false},
		"deleted and made":                  {[]porcupine.Operation{first, op(2, 3, deed{verb: "delete", expected: 1}), op(4, 5, deed{verb: "save", value: "two", revision: 3})}, true},
	} {
		if got := porcupine.CheckOperations(documents(), c.history); got != c.ok {
			t.Errorf("%s: %t, want %t", name, got, c.ok)
		}
	}
}
