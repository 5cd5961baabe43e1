package round

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestExternalProperties lets nodes join, leave, die and return in any order, with requests and
// facts repeated, dropped and late, and a service that is down at times. checkNodes holds after
// each input; at the end nothing changes any more, and the remaining nodes form a complete round or
// time out.
func TestExternalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newExternals(t)
		for range rapid.IntRange(1, 100).Draw(t, "inputs") {
			e.now = e.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 300, 4000}).Draw(t, "ms")) * time.Millisecond)
			b := e.anything(t)
			switch rapid.IntRange(0, 9).Draw(t, "fate") {
			case 0: // dropped
			case 1:
				e.late = append(e.late, b)
			case 2:
				e.step(t, b)
				e.step(t, b)
			default:
				e.step(t, b)
			}
			if len(e.late) > 0 && rapid.IntRange(0, 5).Draw(t, "arrives") == 0 {
				i := rapid.IntRange(0, len(e.late)-1).Draw(t, "which")
				b, e.late = e.late[i], slices.Delete(e.late, i, i+1)
				e.step(t, b)
			}
		}
		e.calm(t)
	})
}

// externals is one job and the incarnations of its nodes as discovery knows them.
type externals struct {
	s            State
	spec         spec.Job
	now          time.Time
	number       uint64
	incarnations map[ident.NodeID]int
	late         []numbered
	closed       bool
	round        int
}

// numbered is an input with the number of its fact.
type numbered struct {
	body   events.Body
	number uint64
}

func newExternals(t *rapid.T) *externals {
	least := rapid.IntRange(1, 3).Draw(t, "min")
	e := &externals{s: Machine{}.New("j-1"), now: time.Unix(1000, 0).UTC(), incarnations: map[ident.NodeID]int{}}
	e.spec = spec.Job{
		Name: "j", Command: []string{"x"}, Recovery: rapid.SampledFrom([]spec.Recovery{spec.RecoveryInProcess, spec.RecoveryRestart}).Draw(t, "recovery"),
		Rendezvous: &spec.Rendezvous{
			Nodes: spec.NodeRange{Min: least, Max: least + rapid.IntRange(0, 2).Draw(t, "more")}, WorkersPerNode: rapid.IntRange(1, 2).Draw(t, "per"),
			JoinTimeout: spec.Duration(20 * time.Second), LastCallTimeout: spec.Duration(2 * time.Second),
		},
	}.WithDefaults()
	e.step(t, numbered{events.JobSubmitted{Job: "j-1", Spec: e.spec}, 1})
	return e
}

func (e *externals) anything(t *rapid.T) numbered {
	n := rapid.SampledFrom([]ident.NodeID{"a", "b", "c", "d", "e"}).Draw(t, "node")
	inc := func() ident.Incarnation { return ident.Incarnation(fmt.Sprintf("agent-%d", e.incarnations[n])) }
	fact := func() events.NodeFact { return events.NodeFact{Node: n, Incarnation: inc()} }
	fresh := func(b events.Body) numbered { e.number++; return numbered{b, e.number} }
	place := ident.Place{Node: n, Slot: ident.Slot(rapid.IntRange(0, e.spec.Rendezvous.WorkersPerNode-1).Draw(t, "slot"))}
	attempt := 1
	if x := e.s.member(place); x != nil {
		attempt = x.Attempt
	}
	incarnation := ident.Incarnation(fmt.Sprintf("%s#%d", place, attempt))
	switch rapid.IntRange(0, 17).Draw(t, "kind") {
	case 0:
		return fresh(events.NodeLost{NodeFact: fact()})
	case 1:
		return fresh(events.NodeJoined{NodeFact: fact()})
	case 2:
		e.incarnations[n]++
		return fresh(events.NodeJoined{NodeFact: fact()})
	case 3:
		return fresh(events.NodeSuspected{NodeFact: fact()})
	case 4:
		return fresh(events.NodeRecovered{NodeFact: fact()})
	case 5:
		return numbered{body: events.NodeExit{Job: "j-1", Node: n, Incarnation: inc(), Reason: "it goes"}}
	case 6:
		if rapid.IntRange(0, 9).Draw(t, "close") == 0 {
			return numbered{body: events.RendezvousClose{Job: "j-1"}}
		}
		return fresh(events.NodeDraining{NodeFact: fact()})
	case 7:
		return numbered{body: events.Heartbeat{Node: n, Incarnation: inc()}}
	case 8:
		return numbered{body: events.WorkerExited{WorkerRef: tables.WorkerRef{Job: "j-1", Place: place, Incarnation: incarnation, Attempt: attempt, Generation: e.s.View.Generation}, ExitCode: 1}}
	case 9:
		return numbered{body: events.JobRespawned{Job: "j-1", Place: place, Dead: incarnation, Attempt: attempt + 1}}
	case 10, 11, 12:
		return numbered{body: events.MemberJoin{
			Job: "j-1", Place: place, Incarnation: incarnation, Agent: inc(), Attempt: attempt, Left: e.s.View.Generation, Planned: e.s.Planned, Address: place.String(),
		}}
	case 13:
		return numbered{body: events.Tick{}}
	}
	return numbered{body: events.NodeEnter{Job: "j-1", Node: n, Incarnation: inc(), Slots: 2, Spec: e.spec}}
}

func (e *externals) step(t *rapid.T, b numbered) {
	s, d := Machine{}.Step(viaJSON(t, e.s), events.Input{Number: b.number, Nonce: "n", Body: b.body}, e.now)
	e.s = s
	if d.Forget {
		t.Fatalf("%T forgets a job", b.body)
	}
	e.checkNodes(t, d)
}

func (e *externals) checkNodes(t *rapid.T, d events.Decision) {
	x, r := e.s.Nodes, e.spec.Rendezvous
	n := x.count(participant)
	if n > r.Nodes.Max {
		t.Fatalf("%d participants, max is %d", n, r.Nodes.Max)
	}
	if x.Complete && n < r.Nodes.Min {
		t.Fatalf("complete with %d participants, min is %d", n, r.Nodes.Min)
	}
	if e.closed && x.Closed == "" {
		t.Fatal("a closed rendezvous is open again")
	}
	if e.round > x.Round {
		t.Fatalf("round %d after round %d", x.Round, e.round)
	}
	e.closed, e.round = x.Closed != "", x.Round
	seen := map[ident.NodeID]bool{}
	for _, c := range x.Candidates {
		if seen[c.Node] {
			t.Fatalf("%s is in two lists", c.Node)
		}
		seen[c.Node] = true
		if o, ok := x.Removed[c.Node]; ok && o.Agent == c.Agent {
			t.Fatalf("%s is in a list and out", c.Node)
		}
		switch {
		case c.List == unlisted:
			t.Fatalf("%s is in no list", c.Node)
		case c.List != participant && !x.Complete:
			t.Fatalf("%s is %s while a round forms", c.Node, c.List)
		case x.Closed != "" && c.List != participant:
			t.Fatalf("%s is %s although no node is admitted", c.Node, c.List)
		case c.List == waiting && n >= r.Nodes.Max:
			t.Fatalf("%s waits for a round that is full", c.Node)
		}
	}
	for _, s := range e.s.Members {
		i := x.find(s.Place.Node)
		if !s.Leaving && (i < 0 || x.Candidates[i].List != participant) {
			t.Fatalf("%s has a member, its node is no participant", s.Place)
		}
	}
	if x.Complete && len(d.Facts) > 0 {
		for _, c := range x.Candidates {
			if c.List == participant && len(e.s.membersOn(c.Node)) != r.WorkersPerNode {
				t.Fatalf("%s is a participant with %d members", c.Node, len(e.s.membersOn(c.Node)))
			}
		}
	}
	for _, f := range d.Facts {
		if b, ok := f.Body.(events.RoundSealed); ok {
			checkSealed(t, b, e.spec.Workers)
		}
	}
	if dl := (Machine{}).Deadline(e.s); !dl.IsZero() && !dl.After(e.now) && e.s.Stopping == nil {
		if s, _ := (Machine{}).Step(viaJSON(t, e.s), events.Input{Body: events.Tick{}}, e.now); !(Machine{}).Deadline(s).After(e.now) && !(Machine{}).Deadline(s).IsZero() {
			t.Fatalf("the deadline %s is over and nothing comes of it", dl)
		}
	}
}

// calm lets only time pass.
func (e *externals) calm(t *rapid.T) {
	for range 200 {
		dl := Machine{}.Deadline(e.s)
		if dl.IsZero() {
			break
		}
		if dl.After(e.now) {
			e.now = dl
		}
		e.step(t, numbered{body: events.Tick{}})
	}
	x := e.s.Nodes
	if wake := x.deadline(); !wake.IsZero() {
		t.Fatalf("still waits for %s", wake)
	}
	if n := x.count(participant); !x.Complete && n > 0 {
		t.Fatalf("%d nodes wait for ever", n)
	}
	if x.count(waiting) > 0 {
		t.Fatalf("%v wait for ever", x.nodes(waiting))
	}
}
