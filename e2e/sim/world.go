package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
)

// epoch is the start time of every run.
var epoch = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is one run.
type world struct {
	sc          scenario
	rng         *rand.Rand
	now         time.Time
	queue       []entry // the next one last
	broker      *memory.Bus
	durables    []*durable
	launches    map[string]broker.Stored // newest by subject
	services    map[string][]*replica    // by name of the service
	nodes       []*node
	jobs        []*jobRun
	awaited     []action                // actions that wait for words in the log
	routes      map[string]*replica     // by kind, as set by a written scenario
	partitioned map[[2]ident.NodeID]int // pairs of nodes whose workers cannot reach each other
	check       *checker
	calm        bool     // faults have stopped
	over        bool     // all jobs have ended, after the faults
	made        int      // ids
	mutant      mutation // the bug that is put into the services on purpose
	played      int      // events so far
	output      func(string)
}

// run runs a scenario to its end and returns the first violation, or nil.
func run(sc scenario, m mutation, output func(string)) *violation {
	w := &world{
		sc: sc, rng: rand.New(rand.NewPCG(sc.seed, 0x9e3779b97f4a7c15)), now: epoch, services: map[string][]*replica{},
		routes: map[string]*replica{}, partitioned: map[[2]ident.NodeID]int{}, launches: map[string]broker.Stored{}, output: output,
	}
	w.broker = newBroker(w)
	w.check = newChecker(w)
	w.buildServices(m)
	for i, n := range sc.nodes {
		w.nodes = append(w.nodes, newNode(w, nodeName(i), n))
	}
	for i, s := range sc.jobs {
		w.jobs = append(w.jobs, newJobRun(w, i, s))
	}
	for _, n := range w.nodes {
		w.after(w.between(0, 800*time.Millisecond), n.boot)
	}
	w.arm(sc.actions)
	for _, f := range sc.faults {
		w.at(epoch.Add(f.at), func() { w.inject(f) })
	}
	w.at(epoch.Add(sc.calmAt), w.calmDown)
	w.runUntil(epoch.Add(sc.calmAt + calmTimeout))
	if w.check.found == nil && !w.over {
		w.check.unfinished()
	}
	return w.check.found
}

// nodeName is node-a to node-z, then node-ba and so on.
func nodeName(i int) ident.NodeID {
	name := string(rune('a' + i%26))
	if i >= 26 {
		name = string(rune('a'+i/26)) + name
	}
	return ident.NodeID("node-" + name)
}

// calmTimeout is how long a calm system may take until every job has ended. It is longer than any
// sum of the graces and limits that can apply to a job in sequence.
const calmTimeout = 4 * time.Minute

// maxEvents is more than any run needs: beyond it the system loops without progress.
const maxEvents = 300_000

// runUntil handles events in order until a point in time, the end, or a violation. It is reentrant:
// while a replica is frozen in the middle of a step, the others continue.
func (w *world) runUntil(end time.Time) {
	for w.check.found == nil && !w.over {
		last := len(w.queue) - 1
		if last < 0 || w.queue[last].at.After(end) {
			break
		}
		e := w.queue[last]
		w.queue[last] = entry{}
		w.queue, w.now = w.queue[:last], e.at
		if w.played++; w.played > maxEvents {
			w.check.fail(8, "%d events are on the way to nothing", maxEvents)
		}
		e.do()
	}
	if w.check.found == nil && !w.over && w.now.Before(end) {
		w.now = end
	}
}

// at schedules an event. Events of the same time happen in the order in which they were scheduled.
func (w *world) at(t time.Time, do func()) {
	if t.Before(w.now) {
		t = w.now
	}
	i, _ := slices.BinarySearchFunc(w.queue, t, func(e entry, t time.Time) int {
		if e.at.After(t) {
			return -1
		}
		return 1
	})
	w.queue = slices.Insert(w.queue, i, entry{t, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now.Add(d), do) }

// between draws a duration.
func (w *world) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	if w.sc.exact {
		return (least + most) / 2
	}
	return least + time.Duration(w.rng.Int64N(int64(most-least)))
}

// any draws a number below n.
func (w *world) any(n int) int {
	if w.sc.exact {
		return 0
	}
	return w.rng.IntN(n)
}

// maybe draws true with a probability in percent; it is not a fault.
func (w *world) maybe(percent int) bool { return !w.sc.exact && w.rng.IntN(100) < percent }

// chance draws a fault with a probability in percent; there are none in a calm world.
func (w *world) chance(percent int) bool { return !w.calm && w.maybe(percent) }

// hop draws the latency of a message.
func (w *world) hop() time.Duration {
	d := w.between(200*time.Microsecond, 4*time.Millisecond)
	if w.chance(w.sc.slow) {
		d += w.between(0, 400*time.Millisecond)
	}
	return d
}

func (w *world) id(kind string) string {
	w.made++
	return fmt.Sprintf("%s-%d", kind, w.made)
}

// logf adds a line to the log.
func (w *world) logf(format string, args ...any) {
	if w.output != nil || len(w.awaited) > 0 {
		line := fmt.Sprintf(format, args...)
		w.emit(fmt.Sprintf("%9.3fs  ", w.now.Sub(epoch).Seconds()) + line)
		w.trigger(line)
	}
}

func (w *world) emit(line string) {
	if w.output != nil {
		w.output(line)
	}
}

// entry is a scheduled event.
type entry struct {
	at time.Time
	do func()
}
