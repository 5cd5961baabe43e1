package plan_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// world publishes numbered facts like the services of jobs and nodes.
type world struct {
	nodes map[ident.NodeID]uint64
	inc   map[ident.NodeID]int
	jobs  map[ident.JobID]uint64
	of    map[ident.JobID]int // their elastic.multipleOf
	gpu   map[ident.JobID]*spec.GPU
}

// gpus are of two models, and of one that is unknown.
var gpus = []devices.Slots{{Model: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559}, {Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960}, {}}

// requests are for any slot, for any GPU, and for some.
var requests = []*spec.GPU{nil, nil, nil, {}, {Model: "H100"}, {Model: "a100"}, {Memory: "40GB"}, {Model: "H100", Memory: "94GB"}}

// anyGPUs sets the GPUs of slots: none, equal ones, several kinds, or not as many as slots, which
// no fact should have.
func anyGPUs(t *rapid.T, f *events.NodeFact) {
	for left := f.Slots; left > 0 && rapid.IntRange(0, 4).Draw(t, "more GPUs") > 0; {
		g := rapid.SampledFrom(gpus).Draw(t, "GPU")
		g.Count = rapid.SampledFrom([]int{left, left, 1, 2, 0, -1}).Draw(t, "count")
		f.GPUs, left = append(f.GPUs, g), left-max(0, g.Count)
	}
}

// matches reports whether a slot has what a job asks for.
func matches(asks *spec.GPU, n plan.Node, s ident.Slot) bool {
	if asks == nil {
		return true
	}
	var all []devices.Slots // by slot
	for _, g := range n.GPUs {
		all = append(all, slices.Repeat([]devices.Slots{g}, max(0, g.Count))...)
	}
	return int(s) < len(all) && asks.Matches(all[s].Model, all[s].MemoryMiB)
}

func (w *world) next(t *rapid.T) events.Input {
	if rapid.Bool().Draw(t, "about a job") {
		id := ident.JobID(rapid.SampledFrom([]string{"j1", "j2", "j3", "j4", "j5", "j6"}).Draw(t, "job"))
		w.jobs[id]++
		if w.jobs[id] == 1 {
			w.of[id] = rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "multiple")
			w.gpu[id] = rapid.SampledFrom(requests).Draw(t, "request")
		}
		of := max(1, w.of[id])
		least := rapid.IntRange(1, 6/of).Draw(t, "min")
		workers := spec.Workers{Min: of * least, Max: of * (least + rapid.IntRange(0, 4).Draw(t, "more"))}
		in := events.Input{Number: w.jobs[id]}
		switch {
		case in.Number == 1:
			recovery := rapid.SampledFrom([]spec.Recovery{spec.RecoveryRestart, spec.RecoveryInProcess}).Draw(t, "recovery")
			in.Body = events.JobSubmitted{Job: id, Spec: spec.Job{Name: string(id), Workers: workers, Recovery: recovery, Elastic: spec.Elastic{MultipleOf: w.of[id]}, GPU: w.gpu[id]}}
		case rapid.IntRange(0, 3).Draw(t, "end") == 0:
			in.Body = events.JobFailed{JobEnd: events.JobEnd{Job: id}}
		default:
			in.Body = events.JobScaled{Job: id, Workers: workers}
		}
		return in
	}
	id := ident.NodeID(rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"}).Draw(t, "node"))
	w.nodes[id]++
	what := rapid.IntRange(0, 9).Draw(t, "what")
	if what == 0 {
		w.inc[id]++
	}
	f := events.NodeFact{Node: id, Incarnation: ident.Incarnation(fmt.Sprint(w.inc[id])), Slots: rapid.IntRange(0, 4).Draw(t, "slots")}
	anyGPUs(t, &f)
	if rapid.IntRange(0, 3).Draw(t, "attributes") == 0 {
		anyAttributes(t, &f)
	}
	in := events.Input{Number: w.nodes[id]}
	switch what {
	case 7:
		in.Body = events.NodeQuarantined{NodeFact: f}
	case 8:
		in.Body = events.NodeReleased{NodeFact: f}
	case 9:
		in.Body = events.NodeChanged{NodeFact: f}
	case 0, 1:
		in.Body = events.NodeJoined{NodeFact: f}
	case 2:
		in.Body = events.NodeSuspected{NodeFact: f}
	case 3:
		in.Body = events.NodeRecovered{NodeFact: f}
	case 4:
		in.Body = events.NodeDraining{NodeFact: f}
	case 5:
		in.Body = events.NodeLost{NodeFact: f}
	case 6:
		in.Body = events.NodeLeft{NodeFact: f}
	}
	return in
}

// anyAttributes sets the attributes of a node other than its state.
func anyAttributes(t *rapid.T, f *events.NodeFact) {
	f.State = rapid.SampledFrom([]events.NodeState{events.NodeStateReady, events.NodeStateSuspected, events.NodeStateLost, events.NodeStateLeft}).Draw(t, "state")
	f.Drains = rapid.IntRange(0, 4).Draw(t, "drains") == 0
	q := events.Quarantine{Since: noon, Until: noon.Add(time.Minute), Reason: "for a reason", Count: 1}
	for i := range f.Slots {
		if rapid.IntRange(0, 2).Draw(t, "quarantined") == 0 {
			f.QuarantinedSlots = append(f.QuarantinedSlots, events.QuarantinedSlot{Slot: ident.Slot(i), Quarantine: q})
		}
	}
	if rapid.Bool().Draw(t, "quarantined") {
		f.Quarantine = &q
	}
	if rapid.IntRange(0, 4).Draw(t, "excluded") == 0 {
		f.Excluded = "is not in the host list"
	}
}

// stays reports whether a job may keep a place on the node.
func stays(j plan.Job, n plan.Node, s ident.Slot) bool { return usable(n, s) && matches(j.GPU, n, s) }

// usable reports whether a slot may be used by any job.
func usable(n plan.Node, s ident.Slot) bool {
	return n.Gone == "" && !n.Draining && n.Excluded == "" && int(s) < n.Slots &&
		!slices.ContainsFunc(n.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == s })
}

// deliver changes a history as a network may: repeats, losses and another order.
func deliver(t *rapid.T, facts []events.Input) []events.Input {
	var out []events.Input
	for _, in := range facts {
		for range rapid.SampledFrom([]int{1, 1, 1, 1, 2, 0}).Draw(t, "copies") {
			at := max(0, len(out)-rapid.SampledFrom([]int{0, 0, 0, 1, 3, 8}).Draw(t, "late"))
			out = slices.Insert(out, at, in)
		}
	}
	return out
}

func history(t *rapid.T) []events.Input {
	w := world{map[ident.NodeID]uint64{}, map[ident.NodeID]int{}, map[ident.JobID]uint64{}, map[ident.JobID]int{}, map[ident.JobID]*spec.GPU{}}
	var facts []events.Input
	for range rapid.IntRange(1, 50).Draw(t, "length") {
		facts = append(facts, w.next(t))
	}
	return facts
}

func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := plan.Machine{}
		s := m.New(events.PoolKey)
		read := map[ident.JobID][]ident.Place{} // from the facts alone
		for _, in := range deliver(t, history(t)) {
			before := maps.Clone(s.View.Jobs)
			queue, nodes := slices.Clone(s.Queue), maps.Clone(s.Nodes)
			var d events.Decision
			s, d = m.Step(s, in, noon)
			for _, f := range d.Facts {
				switch b := f.Body.(type) {
				case events.PlacementSet:
					read[b.Job] = b.Places
					if b.Reason == "" || b.Workers != s.View.Jobs[b.Job].Workers {
						t.Fatalf("%+v has no reason, or other workers than the pool", b)
					}
				case events.PlacementWaiting:
					if b.Reason == "" {
						t.Fatalf("%s waits without a reason", b.Job)
					}
				case events.PlacementReleased:
					delete(read, b.Job)
				}
			}
			check(t, s)
			stable(t, before, nodes, s)
			obedient(t, before, s)
			multiples(t, before, s)
			fair(t, queue, before, s)
			for id, row := range s.View.Jobs {
				if !slices.Equal(read[id], row.Places) {
					t.Fatalf("facts say that %s has %v, the pool %v", id, read[id], row.Places)
				}
			}
			if len(read) > len(s.View.Jobs) {
				t.Fatalf("facts know %d jobs, the pool %d", len(read), len(s.View.Jobs))
			}
			if _, d = m.Step(s, in, noon); len(d.Facts) > 0 {
				t.Fatalf("the repeat of %+v facts %+v", in, d.Facts)
			}
		}
	})
}

// check verifies the invariants: no slot is given twice, none that does not exist, never more than
// max, a gang or nothing, and a job with fewer slots than it wants has a reason.
func check(t *rapid.T, s plan.State) {
	taken := map[ident.Place]ident.JobID{}
	for _, j := range s.Queue {
		row := s.View.Jobs[j.ID]
		for _, p := range row.Places {
			if other, ok := taken[p]; ok {
				t.Fatalf("%s is given to %s and %s", p, other, j.ID)
			}
			taken[p] = j.ID
			if n := s.Nodes[p.Node]; !stays(j, n, p.Slot) {
				t.Fatalf("%s, which asks for %v, has %s, but the node is %+v", j.ID, j.GPU, p, n)
			}
		}
		switch {
		case len(row.Places) > row.Workers.Max:
			t.Fatalf("%s has %d places, max is %d", j.ID, len(row.Places), row.Workers.Max)
		case !j.Placed && len(row.Places) > 0:
			t.Fatalf("%s waits and has %v", j.ID, row.Places)
		case j.Submitted && (len(row.Places) < row.Workers.Max) != (row.Waiting != ""):
			t.Fatalf("%s has %d of %d and says %q", j.ID, len(row.Places), row.Workers.Max, row.Waiting)
		case !slices.IsSortedFunc(row.Places, ident.Place.Compare):
			t.Fatalf("%s has unsorted places %v", j.ID, row.Places)
		}
	}
	if len(s.View.Jobs) != len(s.Queue) {
		t.Fatalf("%d rows for %d jobs", len(s.View.Jobs), len(s.Queue))
	}
}

// stable verifies that a place whose slot still exists is kept, unless the job is over its max, has
// given all back because it cannot run, or the place belonged to another incarnation of the node.
func stable(t *rapid.T, before map[ident.JobID]events.PlacementView, nodes map[ident.NodeID]plan.Node, s plan.State) {
	for _, j := range s.Queue {
		row := s.View.Jobs[j.ID]
		if left := before[j.ID].Places; !j.Placed && len(left) > 0 {
			left = slices.DeleteFunc(slices.Clone(left), func(p ident.Place) bool {
				return !stays(j, s.Nodes[p.Node], p.Slot) || s.Nodes[p.Node].Incarnation != nodes[p.Node].Incarnation
			})
			if !j.Restart || len(left) >= row.Workers.Min {
				t.Fatalf("%s (%+v) gave %v back and could run with it", j.ID, row.Workers, left)
			}
		}
		if j.Placed && j.Restart && j.Submitted && !j.Returning && len(row.Places) < row.Workers.Min {
			t.Fatalf("%s holds %v and cannot run with less than %d", j.ID, row.Places, row.Workers.Min)
		}
	}
	for _, j := range s.Queue {
		id, row := j.ID, s.View.Jobs[j.ID]
		if !j.Placed { // it gave all back
			continue
		}
		for _, p := range before[id].Places {
			n := s.Nodes[p.Node]
			if n.Incarnation != nodes[p.Node].Incarnation {
				continue
			}
			if stays(j, n, p.Slot) && !slices.Contains(row.Places, p) && len(row.Places) < row.Workers.Max {
				t.Fatalf("%s lost %s for nothing: %v to %v", id, p, before[id].Places, row.Places)
			}
		}
	}
}

// obedient verifies that no new place is on a node that is quarantined or suspected.
func obedient(t *rapid.T, before map[ident.JobID]events.PlacementView, s plan.State) {
	for id, row := range s.View.Jobs {
		for _, p := range row.Places {
			if n := s.Nodes[p.Node]; !slices.Contains(before[id].Places, p) && (n.Quarantine != nil || n.Suspected) {
				t.Fatalf("%s got %s, but the node is %+v", id, p, n)
			}
		}
	}
}

// multiples verifies that a job that can train, and has new places, has a multiple of its number.
func multiples(t *rapid.T, before map[ident.JobID]events.PlacementView, s plan.State) {
	for _, j := range s.Queue {
		row := s.View.Jobs[j.ID]
		grown := slices.ContainsFunc(row.Places, func(p ident.Place) bool { return !slices.Contains(before[j.ID].Places, p) })
		if has := len(row.Places); grown && has >= row.Workers.Min && has%max(1, j.MultipleOf) != 0 {
			t.Fatalf("%s has grown from %v to %v, which is no multiple of %d", j.ID, before[j.ID].Places, row.Places, j.MultipleOf)
		}
	}
}

// fair verifies that no job waits while enough slots that will do are free and kept for no earlier
// one, that no job was placed on slots, or has grown to slots, that are kept for an earlier one
// that waits and could ever fit, and that none could grow.
func fair(t *rapid.T, queue []plan.Job, before map[ident.JobID]events.PlacementView, s plan.State) {
	taken := map[ident.Place]bool{}
	for _, row := range s.View.Jobs {
		for _, p := range row.Places {
			taken[p] = true
		}
	}
	type slot struct {
		ident.Place
		node plan.Node
		free bool
		of   ident.JobID // the first job for which it is kept
	}
	var all []*slot // of nodes that get work, or may again
	for id, n := range s.Nodes {
		for i := range n.Slots {
			p := ident.Place{Node: id, Slot: ident.Slot(i)}
			if usable(n, p.Slot) && n.Quarantine == nil {
				all = append(all, &slot{Place: p, node: n, free: !n.Suspected && !taken[p]})
			}
		}
	}
	count := func(j plan.Job, of func(*slot) bool) (n int) {
		for _, x := range all {
			if matches(j.GPU, x.node, x.Slot) && of(x) {
				n++
			}
		}
		return n
	}
	available := func(x *slot) bool { return x.free && x.of == "" }
	was := map[ident.JobID]bool{}
	for _, j := range queue {
		was[j.ID] = j.Placed
	}
	keptFrom := func(j plan.Job, p ident.Place) {
		for _, x := range all {
			if x.Place == p && x.of != "" {
				t.Fatalf("%s got %s past %s, which waits", j.ID, p, x.of)
			}
		}
	}
	for _, j := range s.Queue {
		least := s.View.Jobs[j.ID].Workers.Min
		switch {
		case j.Placed && !was[j.ID]:
			for _, p := range s.View.Jobs[j.ID].Places {
				keptFrom(j, p)
			}
		case j.Placed || !j.Submitted:
		case least <= count(j, available):
			t.Fatalf("%s, which asks for %v, waits for %d slots while %d are free", j.ID, j.GPU, least, count(j, available))
		case least <= count(j, func(*slot) bool { return true }):
			for _, x := range all {
				if x.of == "" && matches(j.GPU, x.node, x.Slot) {
					x.of = j.ID
				}
			}
		}
	}
	for _, j := range s.Queue {
		row, of := s.View.Jobs[j.ID], max(1, j.MultipleOf)
		has := len(row.Places)
		if could := min(row.Workers.Max, has+count(j, available)); j.Placed && could/of*of > has {
			t.Fatalf("%s has %v of %+v in multiples of %d while %d slots are free", j.ID, row.Places, row.Workers, j.MultipleOf, count(j, available))
		}
		isNew := func(p ident.Place) bool { return !slices.Contains(before[j.ID].Places, p) }
		if grown := slices.DeleteFunc(slices.Clone(row.Places), func(p ident.Place) bool { return !isNew(p) }); has-len(grown) >= row.Workers.Min {
			for _, p := range grown {
				keptFrom(j, p)
			}
		}
	}
}

// TestAnyOrderEndsInTheSameState: once all facts have arrived, the pool is the same for every
// order: no late fact undoes a newer one, and no slot leaks.
func TestAnyOrderEndsInTheSameState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := history(t)
		run := func(inputs []events.Input) plan.State {
			m := plan.Machine{}
			s := m.New(events.PoolKey)
			for _, in := range inputs {
				s, _ = m.Step(s, in, noon)
			}
			return s
		}
		mixed := rapid.Permutation(append(slices.Clone(facts), facts...)).Draw(t, "order")
		a, b := run(facts), run(mixed)
		if !reflect.DeepEqual(a.Nodes, b.Nodes) {
			t.Fatalf("nodes %+v in order, %+v in another", a.Nodes, b.Nodes)
		}
		know := func(s plan.State) map[ident.JobID]spec.Workers {
			out := map[ident.JobID]spec.Workers{}
			for _, j := range s.Queue {
				if j.Submitted {
					out[j.ID] = s.View.Jobs[j.ID].Workers
				}
			}
			return out
		}
		if !maps.Equal(know(a), know(b)) {
			t.Fatalf("jobs %v in order, %v in another", know(a), know(b))
		}
	})
}
