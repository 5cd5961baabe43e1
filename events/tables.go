package events

import (
	"encoding/json"
	"net"
	"strconv"

	"github.com/regroup-io/regroup/events/limits"
)

// MemberTable holds the members of a generation, in order of rank. In JSON it is grouped by node,
// because a generation may have tens of thousands of them:
//
//	[{"node": "node-a", "slots": "0-3", "agent": "01JD…", "host": "10.0.0.7", "ports": [4001, 4002, 4003, 4004],
//	  "prefix": "01JD6KX", "suffix": "Q8", "workers": ["1", "2", "3", "4"], "attempts": 1, "pids": [71, 72, 73, 74],
//	  "commits": {"generation": 2, "step": 940, "hash": "9f…"}}, …]
//
// Ranks count up through the groups, local ranks within one; a worker's incarnation is prefix +
// workers[i] + suffix; its address host + ":" + ports[i], or addresses[i] if they have no common
// host. One number, text or commit in place of a list stands for all of the group, and absent
// values are zero or empty. A table whose ranks do not follow from the order is a plain list of
// members, which is decoded too.
type MemberTable []Member

// MarshalJSON encodes the grouped form.
func (r MemberTable) MarshalJSON() ([]byte, error) {
	if r == nil {
		return []byte("null"), nil
	}
	if !r.ordered() {
		return json.Marshal([]Member(r))
	}
	b := append(make([]byte, 0, 2+len(r)*32), '[')
	for i := 0; i < len(r); {
		if i > 0 {
			b = append(b, ',')
		}
		n := r[i].LocalSize
		b = appendMembers(b, r[i:i+n])
		i += n
	}
	return append(b, ']'), nil
}

// ordered reports whether ranks, local ranks and cross ranks follow from the order.
func (r MemberTable) ordered() bool {
	derived := make(MemberTable, len(r))
	at, seen := 0, map[NodeID]bool{}
	for at < len(r) {
		n := r.onNode(at)
		if seen[r[at].Place.Node] {
			return false
		}
		seen[r[at].Place.Node] = true
		at += n
	}
	derived.number(r)
	for i, m := range r {
		d := derived[i]
		if m.Rank != i || m.LocalRank != d.LocalRank || m.LocalSize != d.LocalSize || m.CrossRank != d.CrossRank ||
			m.CrossSize != d.CrossSize || m.Agent != r[i-m.LocalRank].Agent {
			return false
		}
	}
	return true
}

// onNode counts the members from i on that are on the same node.
func (r MemberTable) onNode(i int) int {
	n := 1
	for i+n < len(r) && r[i+n].Place.Node == r[i].Place.Node {
		n++
	}
	return n
}

// number sets the ranks that follow from the order of places.
func (r MemberTable) number(places MemberTable) {
	var sizes []int // number of nodes with each local rank
	for i := 0; i < len(r); {
		n := places.onNode(i)
		for l := range n {
			if l == len(sizes) {
				sizes = append(sizes, 0)
			}
			m := &r[i+l]
			m.Rank, m.LocalRank, m.LocalSize, m.CrossRank = i+l, l, n, sizes[l]
			sizes[l]++
		}
		i += n
	}
	for i := range r {
		r[i].CrossSize = sizes[r[i].LocalRank]
	}
}

// Number sets ranks in the order of the list, as in Horovod: local ranks count on the node, and for
// each local rank the nodes that have it form a cross group. Members of one node must be adjacent.
func (r MemberTable) Number() { r.number(r) }

func appendMembers(b []byte, group MemberTable) []byte {
	places, incarnations := make(Places, len(group)), make([]Incarnation, len(group))
	attempts, pids := make([]int, len(group)), make([]int, len(group))
	addresses, commits := make([]string, len(group)), make([]Commit, len(group))
	for i, m := range group {
		places[i], incarnations[i], attempts[i], pids[i], addresses[i], commits[i] = m.Place, m.Incarnation, m.Attempt, m.PID, m.Address, m.Commit
	}
	b = appendGroup(b, places, group[0].Agent, incarnations, attempts, pids)
	b = appendAddresses(b, addresses)
	return append(appendCommits(b, commits), '}')
}

// appendGroup appends the common part of MemberTable and WorkerTable, up to the last member and
// without the closing brace.
func appendGroup(b []byte, places Places, agent Incarnation, incarnations []Incarnation, attempts, pids []int) []byte {
	b = appendText(append(b, `{"node":`...), string(places[0].Node))
	run := appendRun(nil, Places(slotsOnly(places)))
	b = append(append(append(b, `,"slots":"`...), run[1:]...), '"')
	if agent != "" {
		b = appendText(append(b, `,"agent":`...), string(agent))
	}
	b = appendIncarnations(b, incarnations)
	return appendColumn(appendColumn(b, "attempts", attempts), "pids", pids)
}

func slotsOnly(p Places) []Place {
	out := make([]Place, len(p))
	for i := range p {
		out[i].Slot = p[i].Slot
	}
	return out
}

// appendColumn appends a member of numbers, unless all are zero.
func appendColumn(b []byte, name string, n []int) []byte {
	for _, v := range n {
		if v != 0 {
			return appendNumbers(append(append(append(b, ',', '"'), name...), '"', ':'), n)
		}
	}
	return b
}

// appendIncarnations appends incarnations: those made by one agent have a common prefix and suffix.
func appendIncarnations(b []byte, incarnations []Incarnation) []byte {
	first := incarnations[0]
	head, tail, none := len(first), len(first), true
	for _, l := range incarnations {
		head = min(head, len(l))
		for i := range head {
			if l[i] != first[i] {
				head = i
				break
			}
		}
		none = none && l == ""
	}
	if none {
		return b
	}
	if len(incarnations) == 1 {
		head = 0
	}
	for _, l := range incarnations {
		tail = min(tail, len(l)-head)
		for i := range tail {
			if l[len(l)-1-i] != first[len(first)-1-i] {
				tail = i
				break
			}
		}
	}
	if len(incarnations) == 1 {
		tail = 0
	}
	if head > 0 {
		b = appendText(append(b, `,"prefix":`...), string(first[:head]))
	}
	if tail > 0 {
		b = appendText(append(b, `,"suffix":`...), string(first[len(first)-tail:]))
	}
	b = append(b, `,"workers":[`...)
	for i, l := range incarnations {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, string(l[head:len(l)-tail]))
	}
	return append(b, ']')
}

func appendAddresses(b []byte, all []string) []byte {
	none, alike := true, true
	ports := make([]int, len(all))
	var host string
	for i, a := range all {
		none = none && a == ""
		h, p, err := net.SplitHostPort(a)
		if i == 0 {
			host = h
		}
		port, wrong := strconv.Atoi(p)
		ports[i] = port
		alike = alike && err == nil && wrong == nil && h == host && net.JoinHostPort(h, strconv.Itoa(port)) == a
	}
	switch {
	case none:
		return b
	case alike:
		return appendNumbers(append(appendText(append(b, `,"host":`...), host), `,"ports":`...), ports)
	}
	b = append(b, `,"addresses":[`...)
	for i, a := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, a)
	}
	return append(b, ']')
}

func appendCommits(b []byte, all []Commit) []byte {
	same := true
	for _, c := range all {
		same = same && c == all[0]
	}
	if same && all[0] == (Commit{}) {
		return b
	}
	b = append(b, `,"commits":`...)
	if same {
		return appendCommit(b, all[0])
	}
	b = append(b, '[')
	for i, c := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCommit(b, c)
	}
	return append(b, ']')
}

func appendCommit(b []byte, c Commit) []byte {
	b = strconv.AppendUint(append(b, `{"generation":`...), uint64(c.Generation), 10)
	b = strconv.AppendUint(append(b, `,"step":`...), c.Step, 10)
	if c.Hash != "" {
		b = appendText(append(b, `,"hash":`...), c.Hash)
	}
	return append(b, '}')
}

// WorkerTable holds the workers of a job by place, the newest incarnation of each. In JSON it is
// grouped by node like a MemberTable (slots, agent, prefix, suffix, workers, attempts, pids), with
// the additional columns
//
//	"generations": 3, "ranks": [0, 1, 2, 3], "states": "ready", "details": {"2": "killed by signal 9"}, "lines": {"2": ["…"]}
//
// One value in place of a list stands for all of the group; ranks are -1 if absent; details, lines
// and exceptions are by index. The job's id is that of the document. A plain list of workers is
// decoded too.
type WorkerTable []WorkerView

// MarshalJSON encodes the grouped form.
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
	places, incarnations := make(Places, len(group)), make([]Incarnation, len(group))
	columns := [4][]int{}
	for i := range columns {
		columns[i] = make([]int, len(group))
	}
	ranked, alike := false, true
	for i := range group {
		w := &group[i]
		places[i], incarnations[i] = w.Place, w.Incarnation
		columns[0][i], columns[1][i], columns[2][i], columns[3][i] = w.Attempt, w.PID, int(w.Generation), w.Rank
		ranked = ranked || w.Rank != -1
		alike = alike && w.State == group[0].State
	}
	b = appendGroup(b, places, group[0].Agent, incarnations, columns[0], columns[1])
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

// appendByIndex appends what only some workers have.
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
			text = []byte("null") // encoding text or lists of it cannot fail
		}
		b = append(b, text...)
	}
	if !first {
		b = append(b, '}')
	}
	return b
}

// UnmarshalJSON decodes both forms.
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

// maxWorkers limits the workers of one document: those of a job and as many that have ended, on
// nodes that have gone.
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

// workerColumns are the columns of a group in a WorkerTable that a MemberTable lacks.
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
			Place: p, Incarnation: g.incarnation(i), Agent: g.agent, Attempt: at(attempts, i), PID: at(pids, i), Generation: Generation(at(generations, i)),
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

// UnmarshalJSON decodes a view and sets the job's id of its workers.
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
