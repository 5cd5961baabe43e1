package events

import (
	"encoding/json"
	"net"
	"strconv"
)

// MemberTable is the members of a generation, in order of rank. In JSON it is grouped by node, because a generation may have tens
// of thousands of them:
//
//	[{"node": "node-a", "slots": "0-3", "agent": "01JD…", "host": "10.0.0.7", "ports": [4001, 4002, 4003, 4004],
//	  "prefix": "01JD6KX", "suffix": "Q8", "workers": ["1", "2", "3", "4"], "attempts": 1, "pids": [71, 72, 73, 74],
//	  "commits": {"generation": 2, "step": 940, "hash": "9f…"}}, …]
//
// Ranks count up through the groups, local ranks within one; a worker's incarnation is prefix + workers[i] + suffix; its address
// host + ":" + ports[i], or addresses[i] where they have nothing in common. One number, text or commit in the place of a list
// stands for all of the group, and what is absent is zero or empty. A roster whose ranks do not follow from the order is a
// plain list of members, which is read too.
type MemberTable []Member

// MarshalJSON writes the grouped form.
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

// ordered tells whether ranks, local ranks and cross ranks are those that the order gives.
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

// number fills in the ranks that follow from the order of places.
func (r MemberTable) number(places MemberTable) {
	var sizes []int // nodes that own each local rank
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

// Number gives ranks in the order of the list, as Horovod has them: local ranks count on the node, and for each local rank the
// nodes that own it form a cross group. Members of one node must follow each other.
func (r MemberTable) Number() { r.number(r) }

func appendMembers(b []byte, group MemberTable) []byte {
	places, lives := make(Places, len(group)), make([]Incarnation, len(group))
	attempts, pids := make([]int, len(group)), make([]int, len(group))
	addresses, commits := make([]string, len(group)), make([]Commit, len(group))
	for i, m := range group {
		places[i], lives[i], attempts[i], pids[i], addresses[i], commits[i] = m.Place, m.Incarnation, m.Attempt, m.PID, m.Address, m.Commit
	}
	b = appendGroup(b, places, group[0].Agent, lives, attempts, pids)
	b = appendAddresses(b, addresses)
	return append(appendCommits(b, commits), '}')
}

// appendGroup writes what rosters and crews have in common, up to the last member and without the closing brace.
func appendGroup(b []byte, places Places, agent Incarnation, lives []Incarnation, attempts, pids []int) []byte {
	b = appendText(append(b, `{"node":`...), string(places[0].Node))
	run := appendRun(nil, Places(slotsOnly(places)))
	b = append(append(append(b, `,"slots":"`...), run[1:]...), '"')
	if agent != "" {
		b = appendText(append(b, `,"agent":`...), string(agent))
	}
	b = appendLives(b, lives)
	return appendColumn(appendColumn(b, "attempts", attempts), "pids", pids)
}

func slotsOnly(p Places) []Place {
	out := make([]Place, len(p))
	for i := range p {
		out[i].Slot = p[i].Slot
	}
	return out
}

// appendColumn writes a member of numbers, unless all are zero.
func appendColumn(b []byte, name string, n []int) []byte {
	for _, v := range n {
		if v != 0 {
			return appendNumbers(append(append(append(b, ',', '"'), name...), '"', ':'), n)
		}
	}
	return b
}

// appendLives writes incarnations: those that one agent has made begin and end alike.
func appendLives(b []byte, lives []Incarnation) []byte {
	first := lives[0]
	head, tail, none := len(first), len(first), true
	for _, l := range lives {
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
	if len(lives) == 1 {
		head = 0
	}
	for _, l := range lives {
		tail = min(tail, len(l)-head)
		for i := range tail {
			if l[len(l)-1-i] != first[len(first)-1-i] {
				tail = i
				break
			}
		}
	}
	if len(lives) == 1 {
		tail = 0
	}
	if head > 0 {
		b = appendText(append(b, `,"prefix":`...), string(first[:head]))
	}
	if tail > 0 {
		b = appendText(append(b, `,"suffix":`...), string(first[len(first)-tail:]))
	}
	b = append(b, `,"workers":[`...)
	for i, l := range lives {
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
