package events

import (
	"encoding/json"
	"strconv"

	"github.com/regroup-io/regroup/events/limits"
)

// WorkerTable is the workers of a job by place: the newest life of each. In JSON it is grouped by node like a MemberTable (slots, agent,
// prefix, suffix, workers, attempts, pids) with, beside those,
//
//	"generations": 3, "ranks": [0, 1, 2, 3], "states": "ready", "details": {"2": "killed by signal 9"}, "lines": {"2": ["…"]}
//
// One value in the place of a list stands for all of the group; ranks are -1 if absent; details, lines and exceptions are by index.
// The job's id is that of the document. A plain list of workers is read too.
type WorkerTable []WorkerView

// MarshalJSON writes the grouped form.
func (c WorkerTable) MarshalJSON() ([]byte, error) {
	if c == nil {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 2+len(c)*32), '[')
	for i := 0; i < len(c); {
		n := 1
		for i+n < len(c) && c[i+n].Place.Node == c[i].Place.Node && c[i+n].Agent == c[i].Agent {
			n++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendWorkers(b, c[i:i+n])
		i += n
	}
	return append(b, ']'), nil
}

func appendWorkers(b []byte, group WorkerTable) []byte {
	places, lives := make(Places, len(group)), make([]Incarnation, len(group))
	columns := [4][]int{}
	for i := range columns {
		columns[i] = make([]int, len(group))
	}
	ranked, alike := false, true
	for i := range group {
		w := &group[i]
		places[i], lives[i] = w.Place, w.Incarnation
		columns[0][i], columns[1][i], columns[2][i], columns[3][i] = w.Attempt, w.PID, int(w.Generation), w.Rank
		ranked = ranked || w.Rank != -1
		alike = alike && w.State == group[0].State
	}
	b = appendGroup(b, places, group[0].Agent, lives, columns[0], columns[1])
	b = appendColumn(b, "generations", columns[2])
	if ranked {
		b = appendNumbers(append(b, `,"ranks":`...), columns[3])
	}
	b = append(b, `,"states":`...)
	if alike {
		b = appendText(b, string(group[0].State))
	} else {
		b = append(b, '[')
		for i := range group {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, string(group[i].State))
		}
		b = append(b, ']')
	}
	b = appendByIndex(b, "details", group, func(w *WorkerView) (any, bool) { return w.Detail, w.Detail != "" })
	b = appendByIndex(b, "lines", group, func(w *WorkerView) (any, bool) { return w.Lines, len(w.Lines) > 0 })
	b = appendByIndex(b, "exceptions", group, func(w *WorkerView) (any, bool) { return w.Exception, w.Exception != nil })
	return append(b, '}')
}

// appendByIndex writes what only some workers have.
func appendByIndex(b []byte, name string, group WorkerTable, of func(*WorkerView) (any, bool)) []byte {
	first := true
	for i := range group {
		v, some := of(&group[i])
		if !some {
			continue
		}
		if first {
			b = append(append(append(b, ',', '"'), name...), `":{`...)
		} else {
			b = append(b, ',')
		}
		first = false
		b = append(strconv.AppendInt(append(b, '"'), int64(i), 10), '"', ':')
		text, err := json.Marshal(v)
		if err != nil {
			text = []byte("null") // neither text nor lists of it fail
		}
		b = append(b, text...)
	}
	if !first {
		b = append(b, '}')
	}
	return b
}

// UnmarshalJSON reads both forms.
func (c *WorkerTable) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*c = nil
		return nil
	}
	out := WorkerTable{}
	var g nodeGroup
	ok := scan(b, func(s *scanner) {
		s.list(func() {
			if isPlain(s) {
				var w WorkerView
				s.value(&w)
				out = append(out, w)
			} else {
				out.read(s, &g)
			}
			if len(out) > maxWorkers {
				g.wrong = tooManyPlaces(len(out))
				s.fail()
			}
		})
	})
	if g.wrong != nil {
		return g.wrong
	}
	if !ok {
		return Errorf(Invalid, "workers must be a list of groups of one node, see events.WorkerTable")
	}
	*c = out
	return nil
}

// mostCrew bounds the workers of one document: those of a job and as many that have ended, on nodes that have gone.
var maxWorkers = 3 * limits.Workers.Max

// read appends the workers of the next group.
func (c *WorkerTable) read(s *scanner, g *nodeGroup) {
	var node NodeID
	var more workerColumns
	g.reset()
	s.object(func(name string) {
		if !g.read(s, name, &node) && !more.read(s, name) {
			s.skip()
		}
	})
	if s.bad || !c.take(g, node, more) {
		s.fail()
	}
}

// crewColumns is what a group of a crew has beside that of a roster.
type workerColumns struct {
	generations, ranks []byte
	states             []string
	details            map[int]string
	lines              map[int][]string
	exceptions         map[int]*Exception
}

func (m *workerColumns) read(s *scanner, name string) bool {
	switch name {
	case "generations":
		m.generations = s.raw()
	case "ranks":
		m.ranks = s.raw()
	case "states":
		if s.peek() == '"' {
			m.states = []string{s.text()}
			break
		}
		s.list(func() { m.states = append(m.states, s.text()) })
	case "details":
		s.value(&m.details)
	case "lines":
		s.value(&m.lines)
	case "exceptions":
		s.value(&m.exceptions)
	default:
		return false
	}
	return true
}

func (c *WorkerTable) take(g *nodeGroup, node NodeID, more workerColumns) bool {
	attempts, ok1 := g.column(g.attempts)
	pids, ok2 := g.column(g.pids)
	generations, ok3 := g.column(more.generations)
	ranks, ok4 := g.column(more.ranks)
	if !ok1 || !ok2 || !ok3 || !ok4 || !g.fits() || (len(more.states) != 1 && len(more.states) != len(g.places)) {
		return false
	}
	for i, p := range g.places {
		p.Node = node
		w := WorkerView{WorkerRef: WorkerRef{
			Place: p, Incarnation: g.life(i), Agent: g.agent, Attempt: at(attempts, i), PID: at(pids, i), Generation: Generation(at(generations, i)),
		}, Rank: -1, State: WorkerState(more.states[0]), Detail: more.details[i], Lines: more.lines[i], Exception: more.exceptions[i]}
		if ranks != nil {
			w.Rank = ranks[i]
		}
		if len(more.states) > 1 {
			w.State = WorkerState(more.states[i])
		}
		*c = append(*c, w)
	}
	return true
}

// UnmarshalJSON reads a view and gives its workers the job's id.
func (v *JobView) UnmarshalJSON(b []byte) error {
	type plain JobView
	if err := json.Unmarshal(b, (*plain)(v)); err != nil {
		return err
	}
	for i := range v.Workers {
		v.Workers[i].Job = v.Job
	}
	return nil
}
