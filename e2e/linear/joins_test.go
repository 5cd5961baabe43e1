package linear

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/jetstream/jetstreamtest"
	"github.com/regroup-io/regroup/services/rendezvous"
)

var generations = flag.Int("generations", 8, "generations before, during and after the loss of a server")

const (
	job     = ident.JobID("job-a")
	members = 4
	timeout = 60 * time.Second
)

// record is a join that was accepted, or a seal.
type record struct {
	member     string // of a join
	left       ident.Generation
	generation ident.Generation // of a seal
	members    []string
	open       bool             // the join had no reply: it may have been accepted
	is         ident.Generation // the reply was that it is already in this generation
}

// state is the model's state of the round: its last generation, and the members that wait for the
// next one.
type state struct {
	generation ident.Generation
	waiting    string // member@left, sorted
}

// rounds is the specification: an accepted join is in exactly one generation, the next that is
// sealed with its member, and generations have no gaps. A member that repeats a join for lack of a
// reply may be accepted again.
func rounds() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{}} },
		Step: func(s, _, output any) []any {
			now, d := s.(state), output.(record)
			waiting := strings.Fields(now.waiting)
			if d.generation == 0 {
				in := fmt.Sprintf("%s@%d", d.member, d.left)
				waiting = slices.DeleteFunc(waiting, func(w string) bool { return strings.HasPrefix(w, d.member+"@") })
				next := state{now.generation, strings.Join(slices.Sorted(slices.Values(append(waiting, in))), " ")}
				switch {
				case d.left > now.generation, d.is > now.generation:
					return nil // names a generation that was not sealed
				case d.is > 0:
					return []any{now}
				}
				if d.open {
					return []any{now, next}
				}
				return []any{next}
			}
			if d.generation != now.generation+1 {
				return nil
			}
			for _, m := range d.members {
				i := slices.IndexFunc(waiting, func(w string) bool { return strings.HasPrefix(w, m+"@") })
				if i < 0 {
					return nil
				}
				waiting = slices.Delete(waiting, i, i+1)
			}
			return []any{state{d.generation, strings.Join(waiting, " ")}}
		},
		Equal:             func(a, b any) bool { return a == b },
		DescribeOperation: func(_, output any) string { return fmt.Sprintf("%+v", output) },
	}).ToModel()
}

// history is the history so far.
type history struct {
	mu       sync.Mutex
	began    time.Time
	joins    []porcupine.Operation
	sealed   map[ident.Generation]events.RoundSealed
	readAt   map[ident.Generation]int64
	unknown  int
	repeated int
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

func (h *history) join(client int, call, until int64, d record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.open {
		until = math.MaxInt64
		h.unknown++
	}
	h.joins = append(h.joins, porcupine.Operation{ClientId: client, Input: d, Output: d, Call: call, Return: until})
}

// seal records a stored fact; a duplicate must be equal.
func (h *history) seal(t *testing.T, b events.RoundSealed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.sealed[b.Generation]; ok {
		h.repeated++
		if fmt.Sprint(old.Members) != fmt.Sprint(b.Members) {
			t.Errorf("%s was sealed with %v and with %v", b.Generation, old.Members, b.Members)
		}
		return
	}
	h.sealed[b.Generation], h.readAt[b.Generation] = b, h.now()
}

// before is a lower bound of the newest generation that a member knew itself to be in when g was
// sealed.
func (h *history) before(who string, g ident.Generation) (left ident.Generation) {
	for _, j := range h.joins {
		if in := j.Output.(record); in.member == who && in.left < g {
			left = max(left, in.left)
		}
	}
	return left
}

// entered is when the fact was read of the first generation that a member was in after left.
func (h *history) entered(who string, left ident.Generation) int64 {
	for _, g := range slices.Sorted(maps.Keys(h.sealed)) {
		in := func(m tables.Member) bool { return m.Place.String() == who }
		if g > left && slices.ContainsFunc(h.sealed[g].Members, in) {
			return h.readAt[g]
		}
	}
	return math.MaxInt64
}

// operations returns the history as operations. A seal takes effect between the first of its joins
// and the reading of its fact; a join without a reply, if it does, before its member is in a newer
// generation. Were there no such end, the search over dozens of them would not come to one.
func (h *history) operations() []porcupine.Operation {
	all := slices.Clone(h.joins)
	for i, j := range all {
		if d := j.Output.(record); d.open {
			all[i].Return = max(j.Call+1, h.entered(d.member, d.left))
		}
	}
	for _, g := range slices.Sorted(maps.Keys(h.sealed)) {
		d := record{generation: g}
		first := int64(0) // not before the join of its last member started
		for _, m := range h.sealed[g].Members {
			d.members = append(d.members, m.Place.String())
			asked := int64(math.MaxInt64)
			for _, j := range h.joins {
				if in := j.Output.(record); in.member == m.Place.String() && in.left >= h.before(in.member, g) {
					asked = min(asked, j.Call)
				}
			}
			first = max(first, min(asked, h.readAt[g]))
		}
		all = append(all, porcupine.Operation{ClientId: members, Input: d, Output: d, Call: first, Return: h.readAt[g]})
	}
	return all
}

// member joins, takes part, and joins again, as an agent with one worker does.
type member struct {
	n       int
	place   ident.Place
	worker  ident.Incarnation
	agent   ident.Incarnation
	ports   broker.Ports
	h       *history
	mu      sync.Mutex
	in      ident.Generation // the newest generation of its launches
	changed chan struct{}    // closed at each launch
}

func (m *member) receive(s broker.Stored) {
	var l events.Launch
	if json.Unmarshal(s.Data, &l) != nil || l.Phase != events.PhaseRun {
		return
	}
	for _, lm := range l.Members {
		if lm.Incarnation == m.worker && lm.Rank >= 0 {
			m.mu.Lock()
			if l.Generation > m.in {
				m.in = l.Generation
				close(m.changed)
				m.changed = make(chan struct{})
			}
			m.mu.Unlock()
		}
	}
}

func (m *member) state() (ident.Generation, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in, m.changed
}

// join repeats the request until it is in a newer generation than the one that it has left.
func (m *member) join(ctx context.Context, left ident.Generation) error {
	ask := events.MemberJoin{
		Job: job, Place: m.place, Incarnation: m.worker, Agent: m.agent, Attempt: 1, Address: "127.0.0.1:1", Left: left,
		Commit: tables.Commit{Generation: left, Step: uint64(left)}, // reports progress: generations without progress are delayed more and more
	}
	if left > 0 {
		ask.Accused = []int{(m.n + 1) % members}
	}
	data, err := bodies.Encode(ask)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		call, d := m.h.now(), record{member: m.place.String(), left: left}
		limit, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		answer, err := m.ports.Calls.Call(limit, events.RequestSubject(events.ServiceRendezvous, events.VerbJoin), data)
		cancel()
		if d.open = err != nil; err == nil {
			w, err := bodies.Decode[events.MemberWaiting](answer)
			if err != nil || w.Over || w.Removed {
				return fmt.Errorf("join of %s: %+v, %w", m.place, w, err)
			}
			if w.Sealed {
				d.is = w.Proposed
			}
		}
		m.h.join(m.n, call, m.h.now(), d)
		end := time.After(200 * time.Millisecond)
		for waiting := true; waiting; {
			now, changed := m.state()
			if now > left {
				return nil
			}
			select {
			case <-changed:
			case <-end:
				waiting = false
			case <-ctx.Done():
				waiting = false
			}
		}
	}
	return ctx.Err()
}

// TestJoinsAreLinearizable lets four members join repeatedly through two replicas of the rendezvous
// on three servers, of which the leader of the rounds' bucket is stopped and restarted.
func TestJoinsAreLinearizable(t *testing.T) {
	s := jetstreamtest.Three(t)
	h := &history{began: time.Now(), sealed: map[ident.Generation]events.RoundSealed{}, readAt: map[ident.Generation]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for range 2 {
		r, err := rendezvous.New(s.Connect(t, nil).Ports(), nil)
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error { return r.Run(ctx) })
	}
	g.Go(func() error {
		return s.Ports.Log.Follow(ctx, broker.Follow{Stream: events.StreamFacts, Subjects: []string{events.FamilySubject(events.FamilyRound, "*")}, Start: broker.FromFirst},
			func(m broker.Stored) error {
				e, err := cloudevent.Decode(m.Header, m.Data)
				if b, ok := e.Body.(events.RoundSealed); ok && err == nil {
					h.seal(t, b)
				}
				return err
			}, nil)
	})
	workers, places := newMembers(t, s, h)
	for _, m := range workers {
		g.Go(func() error { return m.listen(ctx) })
	}
	t.Cleanup(func() { // before the connections are closed
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	place(t, s.Ports, places)

	train(ctx, t, workers, *generations)
	leader := s.Leader(t, "KV_"+events.BucketRounds)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Stop(leader)
	}()
	train(ctx, t, workers, *generations)
	<-stopped
	s.Start(t, leader)
	train(ctx, t, workers, *generations)

	last, _ := workers[0].state()
	await(t, "the last seal is read", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.sealed[last].Generation == last
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("%d joins, %d without an answer, %d generations in %v; %d facts stored again", len(h.joins), h.unknown, len(h.sealed), time.Since(h.began).Round(time.Millisecond), h.repeated)
	if got := porcupine.CheckOperationsTimeout(rounds(), h.operations(), timeout); got != porcupine.Ok {
		t.Errorf("the history is %s", got)
		for _, o := range h.operations() {
			t.Logf("%d-%d %+v", o.Call, o.Return, o.Output)
		}
	}
}

// newMembers returns the members, each with its own connection.
func newMembers(t *testing.T, s *jetstreamtest.Servers, h *history) (workers []*member, places []ident.Place) {
	t.Helper()
	for i := range members {
		m := &member{
			n: i, place: ident.Place{Node: ident.NodeID("node-" + string(rune('a'+i)))}, h: h, ports: s.Connect(t, nil).Ports(), changed: make(chan struct{}),
			worker: ident.Incarnation(fmt.Sprintf("01K0000000000000000000000%d", i)), agent: ident.Incarnation(fmt.Sprintf("01J0000000000000000000000%d", i)),
		}
		workers, places = append(workers, m), append(places, m.place)
	}
	return workers, places
}

// listen receives launches.
func (m *member) listen(ctx context.Context) error {
	err := m.ports.Signals.Launches(ctx, events.StreamLaunches, events.LaunchSubject(m.place.Node, "*"), m.receive)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end of the test
	}
	return err
}

// train takes every member through some generations.
func train(ctx context.Context, t *testing.T, workers []*member, more int) {
	t.Helper()
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start, _ := workers[0].state()
	all, limit := errgroup.WithContext(limit)
	for _, m := range workers {
		all.Go(func() error {
			for {
				left, _ := m.state()
				if left >= start+ident.Generation(more) {
					return nil
				}
				if err := m.join(limit, left); err != nil {
					return err
				}
			}
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// place publishes a placement as the scheduler does.
func place(t *testing.T, p broker.Ports, places []ident.Place) {
	t.Helper()
	w := spec.Workers{Min: members, Max: members}
	spec := spec.Job{Name: "job", Command: []string{"train"}, Workers: w, Recovery: spec.RecoveryInProcess}.WithDefaults()
	e := events.Event{
		ID: "placed", Source: "/regroup/scheduler", Entity: string(job), Number: 1, Time: time.Now(),
		Body: events.PlacementSet{Job: job, Places: places, Workers: w, Spec: spec, Reason: "placed"},
	}
	m, err := cloudevent.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Log.Publish(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.After(timeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("timed out: %s", what)
		}
	}
}

// TestTheModelOfRoundsSees checks that the model refuses invalid histories, and accepts
// undetermined outcomes.
func TestTheModelOfRoundsSees(t *testing.T) {
	op := func(call, until int64, d record) porcupine.Operation {
		return porcupine.Operation{Input: d, Output: d, Call: call, Return: until}
	}
	a, b := op(0, 1, record{member: "a/0"}), op(0, 1, record{member: "b/0"})
	open := op(0, math.MaxInt64, record{member: "b/0", open: true})
	seal := func(call int64, g ident.Generation, who ...string) porcupine.Operation {
		return op(call, call+1, record{generation: g, members: who})
	}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		ok      bool
	}{
		"sealed with both":            {[]porcupine.Operation{a, b, seal(2, 1, "a/0", "b/0")}, true},
		"sealed with one, then both":  {[]porcupine.Operation{a, b, seal(2, 1, "a/0"), op(4, 5, record{member: "a/0", left: 1}), seal(6, 2, "a/0", "b/0")}, true},
		"in two generations for one":  {[]porcupine.Operation{a, b, seal(2, 1, "a/0", "b/0"), op(4, 5, record{member: "a/0", left: 1}), seal(6, 2, "a/0", "b/0")}, false},
		"sealed twice":                {[]porcupine.Operation{a, b, seal(2, 1, "a/0"), seal(4, 1, "b/0")}, false},
		"one is left out":             {[]porcupine.Operation{a, b, seal(2, 2, "a/0", "b/0")}, false},
		"sealed before it has joined": {[]porcupine.Operation{op(4, 5, record{member: "a/0"}), seal(2, 1, "a/0")}, false},
		"open, is in":                 {[]porcupine.Operation{a, open, seal(2, 1, "a/0", "b/0")}, true},
		"open, is not in":             {[]porcupine.Operation{a, open, seal(2, 1, "a/0")}, true},
	} {
		if got := porcupine.CheckOperations(rounds(), c.history); got != c.ok {
			t.Errorf("%s: %t, want %t", name, got, c.ok)
		}
	}
}
