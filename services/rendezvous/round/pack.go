package round

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Pack makes the stored form. What is known of a node and its seats is one line of text, because a job may have tens of
// thousands of seats, and what a seat has in common with its member of the sealed generation, or else with the seat
// before it, is left out:
//
//	node agent seniority fact revision told sum seat seat ...
//	seat: slot,state,attempt,life,agent,address,pid,commit,over,flags,accused   what is empty at its end is left out
//
// Numbers are of base 36. A seat "3=" is that of its member, "3=,life" with a life stopped before. A life is what differs
// from the one before: how many characters are equal at its beginning, at its end, and what is between.
func (s State) Pack() State {
	nodes := map[events.NodeID]bool{}
	for i := range s.Seats {
		nodes[s.Seats[i].Place.Node] = true
	}
	keys(nodes, s.Seniority)
	keys(nodes, s.Agents)
	keys(nodes, s.NodeFacts)
	keys(nodes, s.Told)
	w := writer{b: make([]byte, 0, 64*len(nodes)+16*len(s.Seats))}
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		w.node(&s, n)
	}
	s.Packed = string(w.b)
	s.Seats, s.Seniority, s.Agents, s.NodeFacts, s.Told, s.where, s.again = nil, nil, nil, nil, nil, nil, nil
	return s
}

func keys[V any](into map[events.NodeID]bool, m map[events.NodeID]V) {
	for n := range m {
		into[n] = true
	}
}

// writer makes the text.
type writer struct {
	b      []byte
	at     int64 // of the launch before
	commit events.Commit
}

func (w *writer) node(s *State, n events.NodeID) {
	w.text(string(n))
	w.field()
	w.text(string(s.Agents[n]))
	w.field()
	w.number(int64(s.Seniority[n]))
	w.field()
	w.number(int64(s.NodeFacts[n]))
	w.field()
	if told, ok := s.Told[n]; ok {
		w.number(int64(told.Revision))
		w.field()
		w.time(told.At)
		w.field()
		w.number(int64(told.Sum))
	} else {
		w.b = append(w.b, "  "...)
	}
	before := Seat{Agent: s.Agents[n], Incarnation: s.Agents[n]}
	seats := s.seatsOn(n)
	for i := range seats {
		x := &seats[i]
		w.field()
		w.number(int64(x.Place.Slot))
		if r := s.rankOf(x.Place, x.Incarnation); r >= 0 && x.like(&s.View.Members[r]) {
			w.b = append(w.b, '=')
			if x.Over != "" {
				w.b = append(w.b, ',')
				w.life(x.Over, x.Incarnation)
			}
		} else {
			w.seat(x, &before)
		}
		before = *x
	}
	w.b = append(w.b, '\n')
}

// like tells whether all that is known of a seat, but the life before, is what its member has.
func (x *Seat) like(m *events.Member) bool {
	return x.State == member && x.Attempt == m.Attempt && x.Agent == m.Agent && x.Address == m.Address && x.PID == m.PID &&
		x.Commit == m.Commit && !x.Leaving && !x.Silent && !x.Cold && x.Accused.IsZero()
}

func (w *writer) seat(x, before *Seat) {
	from := len(w.b)
	end := from
	next := func(empty bool, write func()) {
		w.b = append(w.b, ',')
		if write(); !empty {
			end = len(w.b)
		}
	}
	next(false, func() { w.b = append(w.b, states[x.State]) })
	next(x.Attempt == 0, func() { w.number(int64(x.Attempt)) })
	next(x.Incarnation == "", func() { w.life(x.Incarnation, before.Incarnation) })
	next(x.Agent == before.Agent, func() {
		switch x.Agent {
		case before.Agent:
		case "":
			w.b = append(w.b, '-')
		default:
			w.life(x.Agent, before.Agent)
		}
	})
	next(x.Address == "", func() { w.address(x.Address, before.Address) })
	next(x.PID == 0, func() { w.number(int64(x.PID)) })
	next(x.Commit == events.Commit{}, func() { w.commitOf(x.Commit) })
	next(x.Over == "", func() { w.life(x.Over, x.Incarnation) })
	flags := int64(0)
	if x.Leaving {
		flags |= isLeaving
	}
	if x.Silent {
		flags |= isSilent
	}
	if x.Cold {
		flags |= isCold
	}
	next(flags == 0, func() { w.number(flags) })
	next(x.Accused.IsZero(), func() {
		if !x.Accused.IsZero() {
			w.number(x.Accused.UnixMicro())
		}
	})
	w.b = w.b[:end]
}

const (
	isLeaving = 1 << iota
	isSilent
	isCold
)

var states = map[seatState]byte{coming: 'c', joined: 'j', member: 'm', dead: 'd', blamed: 'b', lost: 'l', finished: 'f'}

func (w *writer) field() { w.b = append(w.b, ' ') }

// number writes nothing for zero.
func (w *writer) number(n int64) {
	if n != 0 {
		w.b = strconv.AppendInt(w.b, n, base)
	}
}

// time writes by how many microseconds it is later than the one before.
func (w *writer) time(at time.Time) {
	w.number(at.UnixMicro() - w.at)
	w.at = at.UnixMicro()
}

const base = 36

// text writes what a field may hold: what would end it is percent-coded.
func (w *writer) text(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c >= 0x7f || c == ',' || c == '%' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == '=' || c == '~' || c == ';':
			w.b = append(w.b, '%', hexDigits[c>>4], hexDigits[c&15])
		default:
			w.b = append(w.b, c)
		}
	}
}

const hexDigits = "0123456789ABCDEF"

func (w *writer) life(l, before events.Incarnation) {
	if l == "" {
		return
	}
	a, b := string(l), string(before)
	head, tail := 0, 0
	for head < min(len(a), len(b), base-1) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a)-head, len(b)-head, base-1) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	w.b = append(w.b, digits36[head], digits36[tail])
	w.text(a[head : len(a)-tail])
}

const digits36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// address writes only the port if the host is that of the seat before.
func (w *writer) address(a, before string) {
	i, j := strings.LastIndexByte(a, ':'), strings.LastIndexByte(before, ':')
	if i >= 0 && j >= 0 && a[:i] == before[:j] {
		w.b = append(w.b, '~')
		a = a[i+1:]
	}
	w.text(a)
}

// commitOf writes a mark if the commit is the one written last: most hold the same.
func (w *writer) commitOf(c events.Commit) {
	switch c {
	case events.Commit{}:
		return
	case w.commit:
		w.b = append(w.b, '~')
		return
	}
	w.commit = c
	w.b = strconv.AppendUint(w.b, uint64(c.Generation), base)
	w.b = strconv.AppendUint(append(w.b, ';'), c.Step, base)
	w.b = append(w.b, ';')
	w.text(c.Hash)
}
