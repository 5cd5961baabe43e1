package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// verbs are the actions of written scenarios. Each reads its operands and returns its effect.
// REPLICA is a replica of a service, like rendezvous-0, or a service: all of its replicas.
//
//	crash|freeze|cut|mute|deafen REPLICA for TIME     frozen: it is paused; mute: it sends nothing; deaf: it receives nothing
//	trap REPLICA STEP [for TIME]                      the fault strikes at this step of its next processing
//	route KIND REPLICA                                facts, commands and requests of a kind go there while it can receive
//	cut|mute|deafen|freeze NODE for TIME              the agent; its workers train on
//	restart NODE for TIME [keeping its disk]          a reboot, with all processes
//	lose|leave|drain|undrain NODE
//	partition NODE NODE for TIME                      their workers cannot reach each other
//	drop launch NODE                                  the next one is lost in transit
//	hang PLACE [for TIME]                             like SIGSTOP
//	kill PLACE [for TIME] · exit PLACE CODE · accuse PLACE by PLACE    the agent can wait for it only after that time
//	delay PLACE TIME                                  how long the next process there takes until it joins
//	tear PLACE by PLACE                               only the first has the next commit, because the second dies during it
//	stop JOB [now] · scale JOB MIN:MAX
var verbs = map[string]func(*operands) func(*world){
	"crash":  onParty((*replica).crash, nil),
	"freeze": onParty((*replica).freeze, (*node).freeze),
	"cut":    onParty(during((*replica).cutOff), during((*node).cutOff)),
	"revoke": onParty(nil, during((*node).revoke)),
	"mute":   onParty(during((*replica).mute), during((*node).setMute)),
	"deafen": onParty(during((*replica).deafen), during((*node).setDeaf)),
	"trap":   verbTrap,
	"route": func(o *operands) func(*world) {
		kind, who := o.next("a kind"), o.next("a replica")
		return func(w *world) { w.routes[kind] = w.replicasNamed(who)[0] }
	},
	"restart": func(o *operands) func(*world) {
		who, d := o.next("a node"), o.span()
		disk := o.word("keeping") && o.word("its") && o.word("disk")
		return func(w *world) { w.nodeNamed(who).restart(disk, d) }
	},
	"lose":    onNode(func(_ *world, n *node) { n.lose() }),
	"leave":   onNode(func(w *world, n *node) { n.leaving = true; n.input(worker.Shutdown{}) }),
	"drain":   onNode(func(w *world, n *node) { w.drain(n, false) }),
	"undrain": onNode(func(w *world, n *node) { w.drain(n, true) }),
	"partition": func(o *operands) func(*world) {
		a, b, d := ident.NodeID(o.next("a node")), ident.NodeID(o.next("a node")), o.span()
		return func(w *world) { w.partition(a, b, d) }
	},
	"drop": func(o *operands) func(*world) {
		if !o.word("launch") {
			o.fail("only a launch can be dropped")
		}
		return onNode(func(_ *world, n *node) { n.misses++ })(o)
	},
	"kill": onProcess(func(p *process, d time.Duration) { p.reclaimed = d; p.exit(-1, "SIGKILL") }),
	"hang": onProcess(func(p *process, d time.Duration) {
		p.hang()
		if d > 0 {
			p.w.after(d, p.wake)
		}
	}),
	"exit": func(o *operands) func(*world) {
		at, code := o.place(), o.number()
		return func(w *world) { w.with(at, func(p *process) { p.exit(code, "") }) }
	},
	"accuse": onTwo(func(p, by *process) { by.abort([]int{p.rank}) }),
	"delay": func(o *operands) func(*world) {
		at, d := o.place(), o.time()
		return func(w *world) { w.nodeNamed(string(at.Node)).startDelay[at.Slot] = d }
	},
	"tear": onTwo(func(p, by *process) { p.group.torn = &torn{keeps: p.start.Place, dies: by.start.Place} }),
	"stop": func(o *operands) func(*world) {
		job, now := o.next("a job"), o.word("now")
		return func(w *world) { w.send("stop", events.JobStop{Job: w.named(job).id, Reason: "asked to", Now: now}) }
	},
	"scale": func(o *operands) func(*world) {
		job := o.next("a job")
		n, err := parseWorkers(o.next("MIN:MAX"))
		if err != nil {
			o.fail("%w", err)
		}
		return func(w *world) { w.scaleTo(w.named(job), n) }
	},
}

// during switches something on, and off again after a time.
func during[P interface{ timeline() *world }](set func(P, bool)) func(P, time.Duration) {
	return func(p P, d time.Duration) {
		set(p, true)
		p.timeline().after(d, func() { set(p, false) })
	}
}

func (n *node) timeline() *world    { return n.w }
func (r *replica) timeline() *world { return r.w }

func onParty(s func(*replica, time.Duration), n func(*node, time.Duration)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		who, d := o.next("a replica or node"), o.span()
		return func(w *world) {
			if strings.HasPrefix(who, "node-") && n != nil {
				n(w.nodeNamed(who), d)
				return
			}
			for _, v := range w.replicasNamed(who) {
				s(v, d)
			}
		}
	}
}

func onNode(do func(*world, *node)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		who := o.next("a node")
		return func(w *world) { do(w, w.nodeNamed(who)) }
	}
}

// onProcess is a verb for the process in a slot, and a time.
func onProcess(do func(*process, time.Duration)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		at, d := o.place(), o.span()
		return func(w *world) { w.with(at, func(p *process) { do(p, d) }) }
	}
}

func verbTrap(o *operands) func(*world) {
	who, at := o.next("a replica"), step(o.next("a step"))
	if !slices.Contains(steps, at) && at != loseSaveAckLate {
		o.fail("there is no step %s", at)
	}
	d := o.span()
	return func(w *world) {
		for _, v := range w.replicasNamed(who) {
			v.trap(trap{step: at, for_: d})
		}
	}
}

// onTwo is a verb for the processes in two slots.
func onTwo(do func(p, by *process)) func(*operands) func(*world) {
	return func(o *operands) func(*world) {
		at := o.place()
		if !o.word("by") {
			o.fail("by whom?")
		}
		by := o.place()
		return func(w *world) {
			w.with(by, func(q *process) {
				w.with(at, func(p *process) {
					if p.group == nil || p.group != q.group {
						w.check.fail(0, "script: %s and %s are not in one generation", by, at)
						return
					}
					do(p, q)
				})
			})
		}
	}
}

// Lookup of names. An unknown name in a script fails its run.

func (w *world) nodeNamed(name string) *node {
	return named("node", name, w.nodes, func(n *node) string { return string(n.id) })
}

func (w *world) replicasNamed(name string) []*replica {
	if all := w.services[name]; all != nil {
		return all
	}
	all := slices.Concat(slices.Collect(maps.Values(w.services))...)
	return []*replica{named("service or replica", name, all, func(r *replica) string { return r.who })}
}

func (w *world) named(job string) *jobRun {
	return named("job", job, w.jobs, func(j *jobRun) string { return j.spec.Name })
}

func named[T any](what, name string, all []T, of func(T) string) T {
	i := slices.IndexFunc(all, func(t T) bool { return of(t) == name })
	if i < 0 {
		panic(fmt.Sprintf("script: there is no %s %s", what, name))
	}
	return all[i]
}

// with calls do with the process in a slot.
func (w *world) with(at ident.Place, do func(*process)) {
	for p := range w.nodeNamed(string(at.Node)).living {
		if p.start.Place == at {
			do(p)
			return
		}
	}
	w.check.fail(0, "script: no process lives at %s", at)
}

// action is a step of a written scenario: at a point in time, or after the first line of the log
// that contains certain words.
type action struct {
	line  string
	at    time.Duration // or the time after the words
	words string        // empty = at
	do    func(w *world)
}

// parseAction reads `at 2s kill node-a/0` or `when "sealed #2 g1" +100ms kill node-a/0`.
func parseAction(line string) (a action, err error) {
	a.line = line
	rest := strings.TrimPrefix(line, "at ")
	if r, when := strings.CutPrefix(line, `when "`); when {
		var ok bool
		if a.words, rest, ok = strings.Cut(r, `" `); !ok {
			return a, fmt.Errorf(`want: when "WORDS" [+TIME] VERB`)
		}
		if !strings.HasPrefix(rest, "+") {
			rest = "+0s " + rest
		}
	}
	at, what, _ := strings.Cut(strings.TrimPrefix(rest, "+"), " ")
	if a.at, err = time.ParseDuration(at); err != nil {
		return a, err
	}
	words := strings.Fields(what)
	if len(words) == 0 {
		return a, fmt.Errorf("no verb")
	}
	v, ok := verbs[words[0]]
	if !ok {
		return a, fmt.Errorf("there is no verb %s", words[0])
	}
	given := operands{words: words[1:]}
	if a.do = v(&given); given.err == nil && len(given.words) > 0 {
		given.err = fmt.Errorf("%q is too much", given.words)
	}
	return a, given.err
}

// operands are the words after a verb; the first error is kept.
type operands struct {
	words []string
	err   error
}

func (o *operands) next(what string) string {
	if len(o.words) == 0 {
		o.fail("%s is missing", what)
		return ""
	}
	w := o.words[0]
	o.words = o.words[1:]
	return w
}

func (o *operands) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// word consumes a word if it is the next one.
func (o *operands) word(w string) bool {
	if len(o.words) > 0 && o.words[0] == w {
		o.words = o.words[1:]
		return true
	}
	return false
}

// span reads an optional `for TIME`.
func (o *operands) span() time.Duration {
	if !o.word("for") {
		return 0
	}
	return o.time()
}

func (o *operands) time() time.Duration {
	d, err := time.ParseDuration(o.next("a time"))
	if err != nil {
		o.fail("%w", err)
	}
	return d
}

func (o *operands) number() int {
	n, err := strconv.Atoi(o.next("a number"))
	if err != nil {
		o.fail("%w", err)
	}
	return n
}

// place reads NODE/SLOT.
func (o *operands) place() ident.Place {
	w := o.next("a place")
	node, slot, _ := strings.Cut(w, "/")
	n, err := strconv.Atoi(slot)
	if err != nil {
		o.fail("%q is no place: want NODE/SLOT", w)
	}
	return ident.Place{Node: ident.NodeID(node), Slot: ident.Slot(n)}
}

// arm schedules the actions of a scenario.
func (w *world) arm(actions []action) {
	for _, a := range actions {
		if a.words == "" {
			w.at(epoch.Add(a.at), func() { w.perform(a) })
			continue
		}
		w.awaited = append(w.awaited, a)
	}
}

func (w *world) perform(a action) {
	w.logf("--- %s", a.line)
	a.do(w)
}

// trigger performs the actions that wait for words of this line.
func (w *world) trigger(line string) {
	for i := 0; i < len(w.awaited); {
		a := w.awaited[i]
		if strings.HasPrefix(line, "---") || !strings.Contains(line, a.words) {
			i++
			continue
		}
		w.awaited = slices.Delete(w.awaited, i, i+1)
		if a.at == 0 {
			w.perform(a)
			i = 0
			continue
		}
		w.after(a.at, func() { w.perform(a) })
	}
}

// expect is an expectation of a written scenario: how many lines of the log contain certain words.
type expect struct {
	line        string
	least, most int
	words       string
}

// parseExpect reads `expect 1 "sealed #4 g2"`, `expect 1-3 "..."` or `expect no "..."`.
func parseExpect(line string) (e expect, err error) {
	e.line = line
	count, words, _ := strings.Cut(strings.TrimPrefix(line, "expect "), " ")
	if e.words, err = strconv.Unquote(words); err != nil {
		return e, fmt.Errorf(`want: expect HOW-OFTEN "WORDS"`)
	}
	least, most, several := strings.Cut(strings.Replace(count, "no", "0", 1), "-")
	if !several {
		most = least
	}
	if e.least, err = strconv.Atoi(least); err == nil {
		e.most, err = strconv.Atoi(most)
	}
	return e, err
}

// unmet returns the expectations that a log does not meet.
func unmet(expects []expect, log []string) (out []string) {
	for _, e := range expects {
		n := 0
		for _, line := range log {
			if !strings.Contains(line, "--- ") && strings.Contains(line, e.words) {
				n++
			}
		}
		if n < e.least || n > e.most {
			out = append(out, fmt.Sprintf("%s: it was said %d times", e.line, n))
		}
	}
	return out
}
