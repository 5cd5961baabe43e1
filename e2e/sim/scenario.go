package sim

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

// scenario is everything that a seed draws up front.
type scenario struct {
	seed     uint64
	replicas [4]int // in the order of events.Services
	nodes    []int  // slots of each node
	jobs     []jobShape
	loss     int // percent of signals, requests, replies and acknowledgements that are lost
	repeat   int // percent of deliveries and requests that come twice
	slow     int // percent of hops that take up to 400 ms
	calmAt   time.Duration
	faults   []fault

	// Fields of written scenarios only.
	exact   bool // nothing is random: every duration is the middle of its range, and there are no faults but the written ones
	actions []action
	expects []expect
	from    string // the first words from which the log is recorded
}

// jobShape describes one job.
type jobShape struct {
	at           time.Duration
	inProcess    bool
	workers      spec.Workers
	samples      uint64
	batch        int
	every        int // steps between commits
	epochs       int
	pace         time.Duration
	work         int // seconds
	budget       int
	grace        time.Duration
	hang         time.Duration // 0 = no hang detection
	sameStep     int           // 0 = default
	breaks       int           // the step in which its workers break their connections, at every attempt; 0 = none
	apart        int           // 1 = its processes do not notice the end of others (restart)
	resets       int           // regroups that are allowed, plus 1; 0 = any number
	gpu          int           // what it asks for, see asksFor
	multiple     int           // of which the number of members is one; 0 = any number
	participants *participants // nil = placed by the scheduler
}

func (s jobShape) spec() spec.Job {
	jobSpec := spec.Job{
		Command: []string{"train"}, Workers: s.workers, Recovery: spec.RecoveryRestart,
		Failures: spec.Failures{Max: &s.budget, Per: spec.Duration(time.Hour)},
		Elastic:  spec.Elastic{LastCall: spec.Duration(2 * time.Second), StartWithin: spec.Duration(startWithin), Timeout: spec.Duration(belowMin)},
		Health:   spec.Health{Hang: spec.Duration(s.hang)},
		Stop:     spec.Stop{Grace: spec.Duration(s.grace)},
	}
	jobSpec.Failures.SameStep, jobSpec.Elastic.MultipleOf = s.sameStep, s.multiple
	jobSpec.GPU = asksFor(s.gpu)
	if s.resets > 0 {
		n := s.resets - 1
		jobSpec.Elastic.ResetLimit = &n
	}
	if s.participants != nil {
		s.participants.spec(&jobSpec)
	}
	if s.inProcess {
		jobSpec.Recovery = spec.RecoveryInProcess
		jobSpec.Data.Samples = s.samples
	}
	return jobSpec
}

// startWithin is longer than any recovery in a calm world takes.
const startWithin = 40 * time.Second

// belowMin is longer than a job has to wait below min until another one frees its slots.
const belowMin = 2 * time.Minute

// largeWorldEvery is how often a seed has many nodes: one in largeWorldEvery. Such a world costs as
// much as several others.
const largeWorldEvery = 40

// draw makes the scenario of a seed.
func draw(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 1))
	sc := scenario{seed: seed, calmAt: 6*time.Second + time.Duration(r.IntN(8000))*time.Millisecond}
	for i := range sc.replicas {
		sc.replicas[i] = 1 + r.IntN(3)
	}
	nodes, jobs, most := 2+r.IntN(3), 3, 3
	if seed%largeWorldEvery == largeWorldEvery-1 {
		nodes, jobs, most = 20+r.IntN(31), 6, 16
	}
	slots := 0
	for range nodes {
		n := 1 + r.IntN(2)
		slots += n
		sc.nodes = append(sc.nodes, n)
	}
	if r.IntN(4) > 0 {
		sc.loss, sc.repeat, sc.slow = r.IntN(12), r.IntN(10), r.IntN(10)
	}
	for range jobs - 2 + r.IntN(3)*r.IntN(2) + r.IntN(2) {
		if len(sc.jobs) == jobs {
			break
		}
		sc.jobs = append(sc.jobs, drawJob(r, slots, most, len(sc.jobs)))
	}
	sc.faults = drawFaults(r, sc)
	drawExternal(&sc)
	drawArrivals(&sc)
	drawMultiples(&sc)
	drawGPUs(&sc)
	return sc
}

// drawMultiples has the jobs of one seed in four train with a multiple of two or three workers.
func drawMultiples(sc *scenario) {
	if sc.seed%4 != 2 {
		return
	}
	r := rand.New(rand.NewPCG(sc.seed, 12))
	slots := 0
	for _, n := range sc.nodes {
		slots += n
	}
	for i := range sc.jobs {
		j, m := &sc.jobs[i], 2+r.IntN(4)/3
		least := (j.workers.Min + m - 1) / m * m
		if j.participants != nil || least > slots {
			continue
		}
		j.multiple = m
		j.workers = spec.Workers{Min: least, Max: max(least, (j.workers.Max+m-1)/m*m)}
	}
}

// arrivalsEvery is how often a seed submits many small jobs at once for few slots: one in
// arrivalsEvery.
const arrivalsEvery = 20

func drawArrivals(sc *scenario) {
	if sc.seed%arrivalsEvery != 13 {
		return
	}
	r := rand.New(rand.NewPCG(sc.seed, 11))
	from := time.Duration(500+r.IntN(3000)) * time.Millisecond
	for range 30 + r.IntN(40) {
		least := 1 + r.IntN(5)/4
		sc.jobs = append(sc.jobs, jobShape{
			at: from + time.Duration(r.IntN(250))*time.Millisecond, workers: spec.Workers{Min: least, Max: least + r.IntN(2)},
			samples: 100, batch: 5, every: 4, epochs: 1, pace: 50 * time.Millisecond, work: 1, budget: 20, grace: time.Second,
		})
	}
}

func drawJob(r *rand.Rand, slots, most, i int) jobShape {
	least := 1 + r.IntN(max(1, min(most, slots-1)))
	s := jobShape{
		at: time.Duration(r.IntN(1500)) * time.Millisecond, inProcess: r.IntN(3) > 0,
		workers: spec.Workers{Min: least, Max: least + r.IntN(most)},
		samples: uint64(150 + r.IntN(250)), batch: 3 + r.IntN(6), every: 1 + r.IntN(5), epochs: 1 + r.IntN(2),
		pace: time.Duration(30+r.IntN(90)) * time.Millisecond, work: 2 + r.IntN(6), budget: 20,
		grace: time.Duration(500+r.IntN(2500)) * time.Millisecond,
	}
	if i > 0 {
		s.at += time.Duration(r.IntN(4000)) * time.Millisecond
	}
	if r.IntN(5) == 0 {
		s.budget = r.IntN(3)
	}
	if r.IntN(3) == 0 {
		s.hang = hangLimit
	}
	switch r.IntN(12) {
	case 0:
		s.sameStep = 1 + r.IntN(2)
	case 1:
		s.resets = 1 + r.IntN(4)
	}
	return s
}

// fault is one fault at one point in time.
type fault struct {
	at   time.Duration
	kind string
	a, b int           // its targets, as its kind interprets them
	last time.Duration // its duration
}

func (f fault) String() string { return fmt.Sprintf("%s %s %d %d %s", f.at, f.kind, f.a, f.b, f.last) }

func parseFault(line string) (fault, error) {
	var f fault
	var at, last string
	if _, err := fmt.Sscan(line, &at, &f.kind, &f.a, &f.b, &last); err != nil {
		return f, fmt.Errorf("fault %q: %w", line, err)
	}
	var err error
	if f.at, err = time.ParseDuration(at); err != nil {
		return f, err
	}
	if f.last, err = time.ParseDuration(last); err != nil {
		return f, err
	}
	if kinds[f.kind] == nil && participantFaults[f.kind] == nil {
		return f, fmt.Errorf("fault %q: there is no kind %s", line, f.kind)
	}
	return f, nil
}

// shrink makes a scenario smaller while it still violates the same invariant: fewer faults, jobs
// and replicas, no noise.
func shrink(sc scenario, m mutation, number int) scenario {
	fails := func(less scenario) bool {
		v := run(less, m, nil)
		return v != nil && v.number == number
	}
	for half := len(sc.faults) / 2; half > 0; half /= 2 { // many at once first
		for i := 0; i+half <= len(sc.faults); {
			less := sc
			less.faults = slices.Delete(slices.Clone(sc.faults), i, i+half)
			if fails(less) {
				sc = less
				continue
			}
			i += half
		}
	}
	for i := len(sc.jobs) - 1; i >= 0 && len(sc.jobs) > 1; i-- {
		less := sc
		less.jobs = slices.Delete(slices.Clone(sc.jobs), i, i+1)
		if fails(less) {
			sc = less
		}
	}
	for i := range sc.replicas {
		less := sc
		if less.replicas[i] = 1; fails(less) {
			sc = less
		}
	}
	less := sc
	if less.loss, less.repeat, less.slow = 0, 0, 0; fails(less) {
		sc = less
	}
	return sc
}

// script writes a scenario as a file: the world, then what happens in it, one line each. Such a
// file is self-contained: it keeps its meaning when seeds draw other worlds.
func script(sc scenario) string {
	var b strings.Builder
	if sc.exact {
		fmt.Fprintln(&b, "exact")
	} else {
		fmt.Fprintf(&b, "seed %d\n", sc.seed)
	}
	fmt.Fprintf(&b, "calm %s\nreplicas %s\nnodes %s\n", sc.calmAt, numbers(sc.replicas[:]), numbers(sc.nodes))
	if sc.loss+sc.repeat+sc.slow > 0 {
		fmt.Fprintf(&b, "noise loss %d repeat %d slow %d\n", sc.loss, sc.repeat, sc.slow)
	}
	for _, j := range sc.jobs {
		fmt.Fprintln(&b, "job", j)
	}
	for _, f := range sc.faults {
		fmt.Fprintln(&b, f)
	}
	for _, a := range sc.actions {
		fmt.Fprintln(&b, a.line)
	}
	if sc.from != "" {
		fmt.Fprintf(&b, "from %q\n", sc.from)
	}
	for _, e := range sc.expects {
		fmt.Fprintln(&b, e.line)
	}
	return b.String()
}

func numbers(in []int) string { return strings.Trim(fmt.Sprint(in), "[]") }

// parse reads what script wrote, up to a line of four dashes. Lines with # are comments.
func parse(text string) (scenario, error) {
	var sc scenario
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "----" {
			break
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := sc.take(line); err != nil {
			return sc, fmt.Errorf("line %d %q: %w", n+1, line, err)
		}
	}
	if len(sc.nodes) == 0 && len(sc.jobs) == 0 && sc.calmAt == 0 { // the seed draws the world
		faults := sc.faults
		sc = draw(sc.seed)
		sc.faults = faults
	}
	if len(sc.nodes) == 0 || len(sc.jobs) == 0 || sc.calmAt == 0 {
		return sc, fmt.Errorf("nodes, job or calm is missing")
	}
	return sc, nil
}

// take reads one line.
func (sc *scenario) take(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "exact":
		sc.exact = true
	case "seed":
		sc.seed, err = strconv.ParseUint(rest, 10, 64)
	case "calm":
		sc.calmAt, err = time.ParseDuration(rest)
	case "replicas":
		_, err = fmt.Sscan(rest, &sc.replicas[0], &sc.replicas[1], &sc.replicas[2], &sc.replicas[3])
	case "nodes":
		for _, s := range strings.Fields(rest) {
			n, err := strconv.Atoi(s)
			if err != nil {
				return err
			}
			sc.nodes = append(sc.nodes, n)
		}
	case "noise":
		_, err = fmt.Sscanf(rest, "loss %d repeat %d slow %d", &sc.loss, &sc.repeat, &sc.slow)
	case "job":
		var j jobShape
		j, err = parseJob(rest)
		sc.jobs = append(sc.jobs, j)
	case "at", "when":
		var a action
		a, err = parseAction(line)
		sc.actions = append(sc.actions, a)
	case "from":
		sc.from, err = strconv.Unquote(rest)
	case "expect":
		var e expect
		e, err = parseExpect(line)
		sc.expects = append(sc.expects, e)
	default:
		var f fault
		f, err = parseFault(line)
		sc.faults = append(sc.faults, f)
	}
	return err
}

// field is a word of a job's line, and where its value is.
type field struct {
	word  string
	value any
}

// always is how many of the fields are written even if they are zero.
const always = 8

func (s *jobShape) fields() []field {
	return []field{
		{"samples", &s.samples},
		{"batch", &s.batch},
		{"every", &s.every},
		{"epochs", &s.epochs},
		{"pace", &s.pace},
		{"work", &s.work},
		{"budget", &s.budget},
		{"grace", &s.grace},
		{"hang", &s.hang},
		{"samestep", &s.sameStep},
		{"breaks", &s.breaks},
		{"apart", &s.apart},
		{"resets", &s.resets},
		{"multiple", &s.multiple},
		{"gpu", &s.gpu},
	}
}

// String writes a job's shape: when it is submitted, how it recovers, its workers, and words with
// values.
func (s jobShape) String() string {
	kind := spec.RecoveryRestart
	if s.inProcess {
		kind = spec.RecoveryInProcess
	}
	text := fmt.Sprintf("%s %s %d:%d", s.at, kind, s.workers.Min, s.workers.Max)
	for i, f := range s.fields() {
		if v := reflect.ValueOf(f.value).Elem(); i < always || !v.IsZero() {
			text += fmt.Sprint(" ", f.word, " ", v)
		}
	}
	if s.participants != nil {
		text += " participants " + s.participants.String()
	}
	return text
}

// parseJob reads a shape; fields that are left out have the defaults below.
func parseJob(text string) (jobShape, error) {
	s := jobShape{samples: 300, batch: 5, every: 4, epochs: 1, pace: 50 * time.Millisecond, work: 4, budget: 20, grace: time.Second}
	words := strings.Fields(text)
	if len(words) < 3 || len(words)%2 == 0 {
		return s, fmt.Errorf("want: job AT in-process|restart MIN:MAX [WORD VALUE]")
	}
	var err error
	if s.at, err = time.ParseDuration(words[0]); err != nil {
		return s, err
	}
	s.inProcess = words[1] == string(spec.RecoveryInProcess)
	if s.workers, err = parseWorkers(words[2]); err != nil {
		return s, err
	}
	for pair := range slices.Chunk(words[3:], 2) {
		i := slices.IndexFunc(s.fields(), func(f field) bool { return f.word == pair[0] })
		switch {
		case pair[0] == "participants":
			s.participants, err = parseParticipants(pair[1])
		case i < 0:
			err = fmt.Errorf("there is no %s", pair[0])
		default:
			if d, ok := s.fields()[i].value.(*time.Duration); ok {
				*d, err = time.ParseDuration(pair[1])
			} else {
				_, err = fmt.Sscan(pair[1], s.fields()[i].value)
			}
			if pair[0] == "gpu" && (s.gpu < 0 || s.gpu >= 2+len(models)) {
				err = fmt.Errorf("gpu %d is not 0 to %d", s.gpu, 1+len(models))
			}
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func parseWorkers(text string) (w spec.Workers, err error) {
	_, err = fmt.Sscanf(text, "%d:%d", &w.Min, &w.Max)
	return w, err
}
