package round

import (
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Unpack reads what Pack has made.
func (s State) Unpack() (State, error) {
	r := reader{s: &s}
	const fields = 7 // of a line, before its seats
	s.Seats = make([]Seat, 0, max(0, strings.Count(s.Packed, " ")-(fields-1)*strings.Count(s.Packed, "\n")))
	for line := range strings.Lines(s.Packed) {
		if r.node(strings.TrimSuffix(line, "\n")); r.bad != "" {
			return s, events.Errorf(events.Invalid, "packed nodes: %s in %q", r.bad, line)
		}
	}
	s.Packed = ""
	return s, nil
}

// reader takes the text apart. The first thing that does not fit is kept in bad.
type reader struct {
	s      *State
	bad    string
	at     int64
	commit events.Commit
}

func (r *reader) node(line string) {
	s := r.s
	field := func() string {
		var f string
		f, line, _ = strings.Cut(line, " ")
		return f
	}
	n := events.NodeID(r.text(field()))
	if agent := field(); agent != "" {
		put(&s.Agents, n, events.Incarnation(r.text(agent)))
	}
	if v := r.number(field()); v != 0 {
		put(&s.Seniority, n, events.Generation(v))
	}
	if v := r.number(field()); v != 0 {
		put(&s.NodeFacts, n, uint64(v))
	}
	revision, at, sum := field(), field(), field()
	if revision != "" {
		r.at += r.number(at)
		put(&s.Told, n, Told{Revision: uint64(r.number(revision)), At: time.UnixMicro(r.at).UTC(), Sum: uint64(r.number(sum))})
	}
	before := Seat{Agent: s.Agents[n], Incarnation: s.Agents[n]}
	for line != "" && r.bad == "" {
		s.Seats = append(s.Seats, r.seat(n, field(), before))
		before = s.Seats[len(s.Seats)-1]
	}
}

func put[V any](m *map[events.NodeID]V, n events.NodeID, v V) {
	if *m == nil {
		*m = map[events.NodeID]V{}
	}
	(*m)[n] = v
}

func (r *reader) seat(n events.NodeID, text string, before Seat) Seat {
	field := func() string {
		var f string
		f, text, _ = strings.Cut(text, ",")
		return f
	}
	slot, like := strings.CutSuffix(field(), "=")
	x := Seat{Place: events.Place{Node: n, Slot: events.Slot(r.number(slot))}}
	if like {
		m := r.member(x.Place)
		x.State, x.Attempt, x.Incarnation, x.Agent, x.Address, x.PID, x.Commit = member, m.Attempt, m.Incarnation, m.Agent, m.Address, m.PID, m.Commit
		x.Over = r.life(field(), x.Incarnation)
		return x
	}
	state := field()
	for name, c := range states {
		if state == string(c) {
			x.State = name
		}
	}
	if x.State == "" {
		r.bad = "a seat without a state"
	}
	x.Attempt = int(r.number(field()))
	x.Incarnation = r.life(field(), before.Incarnation)
	if x.Agent = before.Agent; text != "" {
		switch f := field(); f {
		case "":
		case "-":
			x.Agent = ""
		default:
			x.Agent = r.life(f, before.Agent)
		}
	}
	x.Address = r.address(field(), before.Address)
	x.PID = int(r.number(field()))
	x.Commit = r.commitOf(field())
	x.Over = r.life(field(), x.Incarnation)
	flags := r.number(field())
	x.Leaving, x.Silent, x.Cold = flags&isLeaving != 0, flags&isSilent != 0, flags&isCold != 0
	if f := field(); f != "" {
		x.Accused = time.UnixMicro(r.number(f)).UTC()
	}
	return x
}

// member returns the member of a place in the sealed generation.
func (r *reader) member(p events.Place) events.Member {
	for i, ok := r.s.firstRank(p.Node); ok && i < len(r.s.View.Members) && r.s.View.Members[i].Place.Node == p.Node; i++ {
		if r.s.View.Members[i].Place == p {
			return r.s.View.Members[i]
		}
	}
	r.bad = "a member that the view does not have"
	return events.Member{}
}

func (r *reader) number(s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, base, 64)
	if err != nil {
		r.bad = "a number " + s
	}
	return n
}

func (r *reader) text(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+3 > len(s) {
			r.bad = "an escape " + s
			return ""
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			r.bad = "an escape " + s
		}
		b = append(b, byte(v))
		i += 2
	}
	return string(b)
}

func (r *reader) life(s string, before events.Incarnation) events.Incarnation {
	if s == "" {
		return ""
	}
	b := string(before)
	if len(s) < 2 {
		r.bad = "a life " + s
		return ""
	}
	head, tail := strings.IndexByte(digits36, s[0]), strings.IndexByte(digits36, s[1])
	if head < 0 || tail < 0 || head+tail > len(b) {
		r.bad = "a life " + s
		return ""
	}
	return events.Incarnation(b[:head] + r.text(s[2:]) + b[len(b)-tail:])
}

func (r *reader) address(s, before string) string {
	rest, same := strings.CutPrefix(s, "~")
	if !same {
		return r.text(s)
	}
	return before[:strings.LastIndexByte(before, ':')+1] + r.text(rest)
}

func (r *reader) commitOf(s string) events.Commit {
	switch s {
	case "":
		return events.Commit{}
	case "~":
		return r.commit
	}
	g, rest, _ := strings.Cut(s, ";")
	step, hash, _ := strings.Cut(rest, ";")
	generation, wrong := strconv.ParseUint(g, base, 64)
	at, err := strconv.ParseUint(step, base, 64)
	if err != nil || wrong != nil {
		r.bad = "a commit " + s
	}
	r.commit = events.Commit{Generation: events.Generation(generation), Step: at, Hash: r.text(hash)}
	return r.commit
}
