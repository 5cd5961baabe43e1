package events

import (
	"encoding/json"
	"net"
	"strconv"
	"unicode/utf8"

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
	if r != nil && !r.ordered() {
		return json.Marshal([]Member(r))
	}
	return appendRuns(r, 32, func(a, b *Member) bool { return a.Place.Node == b.Place.Node }, appendMembers)
}

// appendRuns encodes adjacent items that belong together as runs; size estimates an item's bytes.
func appendRuns[T any](all []T, size int, same func(a, b *T) bool, run func(b []byte, items []T) []byte) ([]byte, error) {
	if all == nil {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 2+len(all)*size), '[')
	for len(all) > 0 {
		n := 1
		for n < len(all) && same(&all[0], &all[n]) {
			n++
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b, all = run(b, all[:n]), all[n:]
	}
	return append(b, ']'), nil
}

// ordered reports whether ranks, local ranks and cross ranks follow from the order.
func (r MemberTable) ordered() bool {
	derived, seen := make(MemberTable, len(r)), map[NodeID]bool{}
	for i := range r {
		derived[i].Place.Node = r[i].Place.Node
	}
	derived.Number()
	for i := range derived {
		d, m := &derived[i], &r[i]
		if d.LocalRank == 0 {
			if seen[d.Place.Node] {
				return false
			}
			seen[d.Place.Node] = true
		}
		if m.Rank != i || m.LocalRank != d.LocalRank || m.LocalSize != d.LocalSize || m.CrossRank != d.CrossRank ||
			m.CrossSize != d.CrossSize || m.Agent != r[i-d.LocalRank].Agent {
			return false
		}
	}
	return true
}

// Number sets ranks in the order of the list, as in Horovod: local ranks count on the node, and for
// each local rank the nodes that have it form a cross group. Members of one node must be adjacent.
func (r MemberTable) Number() {
	var sizes []int // number of nodes with each local rank
	for i, n := 0, 0; i < len(r); i += n {
		for n = 1; i+n < len(r) && r[i+n].Place.Node == r[i].Place.Node; n++ {
		}
		for l := range n {
			if l == len(sizes) {
				sizes = append(sizes, 0)
			}
			m := &r[i+l]
			m.Rank, m.LocalRank, m.LocalSize, m.CrossRank = i+l, l, n, sizes[l]
			sizes[l]++
		}
	}
	for i := range r {
		r[i].CrossSize = sizes[r[i].LocalRank]
	}
}

func appendMembers(b []byte, group []Member) []byte {
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
	if first == "" && alike(incarnations) {
		return b
	}
	head, tail := 0, 0
	if len(incarnations) > 1 {
		head = len(first)
		for _, l := range incarnations {
			n := 0
			for n < min(head, len(l)) && l[n] == first[n] {
				n++
			}
			head = n
		}
		tail = len(first) - head
		for _, l := range incarnations {
			n := 0
			for n < min(tail, len(l)-head) && l[len(l)-1-n] == first[len(first)-1-n] {
				n++
			}
			tail = n
		}
		for head > 0 && head < len(first) && !utf8.RuneStart(first[head]) { // no character is cut
			head--
		}
		for tail > 0 && !utf8.RuneStart(first[len(first)-tail]) {
			tail--
		}
	}
	if head > 0 {
		b = appendText(append(b, `,"prefix":`...), string(first[:head]))
	}
	if tail > 0 {
		b = appendText(append(b, `,"suffix":`...), string(first[len(first)-tail:]))
	}
	return appendList(append(b, `,"workers":`...), incarnations, func(b []byte, l Incarnation) []byte {
		return appendText(b, string(l[head:len(l)-tail]))
	})
}

func appendAddresses(b []byte, all []string) []byte {
	if all[0] == "" && alike(all) {
		return b
	}
	ports := make([]int, len(all))
	host, _, err := net.SplitHostPort(all[0])
	same := err == nil
	for i, a := range all {
		h, p, err := net.SplitHostPort(a)
		port, wrong := strconv.Atoi(p)
		ports[i] = port
		same = same && err == nil && wrong == nil && h == host && net.JoinHostPort(h, strconv.Itoa(port)) == a
	}
	if same {
		return appendNumbers(append(appendText(append(b, `,"host":`...), host), `,"ports":`...), ports)
	}
	return appendList(append(b, `,"addresses":`...), all, appendText)
}

func appendCommits(b []byte, all []Commit) []byte {
	same := alike(all)
	if same && all[0] == (Commit{}) {
		return b
	}
	b = append(b, `,"commits":`...)
	if same {
		return appendCommit(b, all[0])
	}
	return appendList(b, all, appendCommit)
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
	return appendRuns(c, 32, func(a, b *WorkerView) bool { return a.Place.Node == b.Place.Node && a.Agent == b.Agent }, appendWorkers)
}

func appendWorkers(b []byte, group []WorkerView) []byte {
	places, incarnations := make(Places, len(group)), make([]Incarnation, len(group))
	columns := [4][]int{}
	for i := range columns {
		columns[i] = make([]int, len(group))
	}
	states, ranked := make([]string, len(group)), false
	for i := range group {
		w := &group[i]
		places[i], incarnations[i] = w.Place, w.Incarnation
		columns[0][i], columns[1][i], columns[2][i], columns[3][i] = w.Attempt, w.PID, int(w.Generation), w.Rank
		ranked = ranked || w.Rank != -1
		states[i] = string(w.State)
	}
	b = appendGroup(b, places, group[0].Agent, incarnations, columns[0], columns[1])
	b = appendColumn(b, "generations", columns[2])
	if ranked {
		b = appendNumbers(append(b, `,"ranks":`...), columns[3])
	}
	b = append(b, `,"states":`...)
	if alike(states) {
		b = appendText(b, states[0])
	} else {
		b = appendList(b, states, appendText)
	}
	b = appendByIndex(b, "details", group, func(w *WorkerView) (any, bool) { return w.Detail, w.Detail != "" })
	b = appendByIndex(b, "lines", group, func(w *WorkerView) (any, bool) { return w.Lines, len(w.Lines) > 0 })
	b = appendByIndex(b, "exceptions", group, func(w *WorkerView) (any, bool) { return w.Exception, w.Exception != nil })
	return append(b, '}')
}

// appendByIndex appends what only some workers have.
func appendByIndex(b []byte, name string, group []WorkerView, of func(*WorkerView) (any, bool)) []byte {
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
	out, _, err := decodeTable(b, "workers", "WorkerTable", maxWorkers, decodeWorkers)
	if err == nil {
		*c = out
	}
	return err
}

// maxWorkers limits the workers of one document: those of a job and twice as many that have ended.
var maxWorkers = 3 * limits.Workers.Max

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

// decodeWorkers appends the workers of the next group.
func decodeWorkers(s *scanner, g *nodeGroup, out []WorkerView) []WorkerView {
	var more workerColumns
	g.decode(s, more.read)
	attempts, pids := g.column(g.attempts), g.column(g.pids)
	generations, ranks := g.column(more.generations), g.column(more.ranks)
	if s.bad || !g.fits() || (len(more.states) != 1 && len(more.states) != len(g.places)) {
		s.fail()
		return out
	}
	for i, p := range g.places {
		p.Node = g.node
		w := WorkerView{WorkerRef: WorkerRef{
			Place: p, Incarnation: g.incarnation(i), Agent: g.agent, Attempt: at(attempts, i), PID: at(pids, i), Generation: Generation(at(generations, i)),
		}, Rank: -1, State: WorkerState(more.states[min(i, len(more.states)-1)]), Detail: more.details[i], Lines: more.lines[i], Exception: more.exceptions[i]}
		if ranks != nil {
			w.Rank = ranks[i]
		}
		out = append(out, w)
	}
	return out
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
