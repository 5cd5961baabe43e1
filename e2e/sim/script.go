package sim

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/spec"
)

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
