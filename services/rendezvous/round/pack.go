package round

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Pack returns the stored form. A node and its members are one line of text, because a job may have
// tens of thousands of members. A member is encoded as the difference to its entry in the sealed
// generation, or else to the previous member:
//
//	node agent seniority fact revision at sum member member ...
//	member: slot,state,attempt,incarnation,agent,address,pid,commit,stopped,flags,rejoinBy
//
// Empty fields at the end are omitted. Numbers are in base 36. "3=" is a member that equals its
// entry in the sealed generation, "3=,incarnation" the same with a Stopped incarnation. An
// incarnation is encoded as its difference to the previous one: the lengths of the common prefix
// and suffix, and the characters between them.
func (s State) Pack() State {
	nodes := s.nodes(func(*Member) bool { return true })
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Seniority))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Agents))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.NodeFacts))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Published))
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	w := writer{b: make([]byte, 0, 64*len(nodes)+16*len(s.Members))}
	for _, n := range nodes {
		w.node(&s, n)
	}
	s.Packed = string(w.b)
	s.Members, s.Seniority, s.Agents, s.NodeFacts, s.Published, s.firstRanks, s.unheard = nil, nil, nil, nil, nil, nil, nil
	return s
}

type writer struct {
	b      []byte
	at     int64 // of the previous launch
	commit events.Commit
}

func (w *writer) node(s *State, n events.NodeID) {
	w.text(string(n))
	w.field().text(string(s.Agents[n]))
	w.field().number(int64(s.Seniority[n]))
	w.field().number(int64(s.NodeFacts[n]))
	if published, ok := s.Published[n]; ok {
		w.field().number(int64(published.Revision))
		w.field().time(published.At)
		w.field().number(int64(published.Sum))
	} else {
		w.b = append(w.b, "   "...)
	}
	before := Member{Agent: s.Agents[n], Incarnation: s.Agents[n]}
	for x := range each(s.membersOn(n)) {
		w.field().number(int64(x.Place.Slot))
		if r := s.rank(x); r >= 0 && x.matches(&s.View.Members[r]) {
			w.b = append(w.b, '=')
			if x.Stopped != "" {
				w.b = append(w.b, ',')
				w.incarnation(x.Stopped, x.Incarnation)
			}
		} else {
			w.member(x, &before)
		}
		before = *x
	}
	w.b = append(w.b, '\n')
}

// matches reports whether all fields of a member except Stopped equal those of m.
func (x *Member) matches(m *events.Member) bool {
	return x.State == active && x.Attempt == m.Attempt && x.Agent == m.Agent && x.Address == m.Address && x.PID == m.PID &&
		x.Commit == m.Commit && !x.Leaving && !x.Unresponsive && !x.Unsynced && x.RejoinBy.IsZero()
}

func (w *writer) member(x, before *Member) {
	from := len(w.b)
	end := from
	next := func(empty bool, write func()) {
		w.b = append(w.b, ',')
		if write(); !empty {
			end = len(w.b)
		}
	}
	next(false, func() { w.b = append(w.b, stateLetters[x.State]) })
	next(x.Attempt == 0, func() { w.number(int64(x.Attempt)) })
	next(x.Incarnation == "", func() { w.incarnation(x.Incarnation, before.Incarnation) })
	next(x.Agent == before.Agent, func() {
		switch x.Agent {
		case before.Agent:
		case "":
			w.b = append(w.b, '-')
		default:
			w.incarnation(x.Agent, before.Agent)
		}
	})
	next(x.Address == "", func() { w.address(x.Address, before.Address) })
	next(x.PID == 0, func() { w.number(int64(x.PID)) })
	next(x.Commit == events.Commit{}, func() { w.commitOf(x.Commit) })
	next(x.Stopped == "", func() { w.incarnation(x.Stopped, x.Incarnation) })
	flags := int64(0)
	if x.Leaving {
		flags |= isLeaving
	}
	if x.Unresponsive {
		flags |= isUnresponsive
	}
	if x.Unsynced {
		flags |= isUnsynced
	}
	next(flags == 0, func() { w.number(flags) })
	next(x.RejoinBy.IsZero(), func() {
		if !x.RejoinBy.IsZero() {
			w.number(x.RejoinBy.UnixMicro())
		}
	})
	w.b = w.b[:end]
}

const (
	isLeaving = 1 << iota
	isUnresponsive
	isUnsynced
)

var stateLetters = map[memberState]byte{pending: 'c', joined: 'j', active: 'm', dead: 'd', respawnDenied: 'b', lost: 'l', finished: 'f'}

// field begins the next field of a line.
func (w *writer) field() *writer {
	w.b = append(w.b, ' ')
	return w
}

// number writes nothing for zero.
func (w *writer) number(n int64) {
	if n != 0 {
		w.b = strconv.AppendInt(w.b, n, base)
	}
}

// time writes the difference to the previous time in microseconds.
func (w *writer) time(at time.Time) {
	w.number(at.UnixMicro() - w.at)
	w.at = at.UnixMicro()
}

const base = 36

// text percent-codes the characters that would end a field.
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

func (w *writer) incarnation(l, before events.Incarnation) {
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

// address writes only the port if the host is that of the previous member.
func (w *writer) address(a, before string) {
	i, j := strings.LastIndexByte(a, ':'), strings.LastIndexByte(before, ':')
	if i >= 0 && j >= 0 && a[:i] == before[:j] {
		w.b = append(w.b, '~')
		a = a[i+1:]
	}
	w.text(a)
}

// commitOf writes a mark if the commit equals the one written last, as most do.
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

// Unpack reads the form that Pack writes.
func (s State) Unpack() (State, error) {
	r := reader{s: &s}
	const fields = 7 // of a line, before its members
	s.Members = make([]Member, 0, max(0, strings.Count(s.Packed, " ")-(fields-1)*strings.Count(s.Packed, "\n")))
	for line := range strings.Lines(s.Packed) {
		if r.node(strings.TrimSuffix(line, "\n")); r.bad != "" {
			return s, events.Errorf(events.Invalid, "packed nodes: %s in %q", r.bad, line)
		}
	}
	s.Packed = ""
	return s, nil
}

// reader parses the text. It keeps the first error in bad.
type reader struct {
	s      *State
	bad    string
	at     int64
	commit events.Commit
}

func (r *reader) node(line string) {
	s := r.s
	field := cutter(&line, " ")
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
		put(&s.Published, n, PublishedLaunch{Revision: uint64(r.number(revision)), At: time.UnixMicro(r.at).UTC(), Sum: uint64(r.number(sum))})
	}
	before := Member{Agent: s.Agents[n], Incarnation: s.Agents[n]}
	for line != "" && r.bad == "" {
		s.Members = append(s.Members, r.member(n, field(), before))
		before = s.Members[len(s.Members)-1]
	}
}

// cutter returns a function that removes the next field from a text.
func cutter(text *string, separator string) func() string {
	return func() string {
		var f string
		f, *text, _ = strings.Cut(*text, separator)
		return f
	}
}

func (r *reader) member(n events.NodeID, text string, before Member) Member {
	field := cutter(&text, ",")
	slot, like := strings.CutSuffix(field(), "=")
	x := Member{Place: events.Place{Node: n, Slot: events.Slot(r.number(slot))}}
	if like {
		m := r.sealedMember(x.Place)
		x.State, x.Attempt, x.Incarnation, x.Agent, x.Address, x.PID, x.Commit = active, m.Attempt, m.Incarnation, m.Agent, m.Address, m.PID, m.Commit
		x.Stopped = r.incarnation(field(), x.Incarnation)
		return x
	}
	state := field()
	for name, c := range stateLetters {
		if state == string(c) {
			x.State = name
		}
	}
	if x.State == "" {
		r.bad = "a member without a state"
	}
	x.Attempt = int(r.number(field()))
	x.Incarnation = r.incarnation(field(), before.Incarnation)
	if x.Agent = before.Agent; text != "" {
		switch f := field(); f {
		case "":
		case "-":
			x.Agent = ""
		default:
			x.Agent = r.incarnation(f, before.Agent)
		}
	}
	x.Address = r.address(field(), before.Address)
	x.PID = int(r.number(field()))
	x.Commit = r.commitOf(field())
	x.Stopped = r.incarnation(field(), x.Incarnation)
	flags := r.number(field())
	x.Leaving, x.Unresponsive, x.Unsynced = flags&isLeaving != 0, flags&isUnresponsive != 0, flags&isUnsynced != 0
	if f := field(); f != "" {
		x.RejoinBy = time.UnixMicro(r.number(f)).UTC()
	}
	return x
}

// sealedMember returns the member of a place in the sealed generation.
func (r *reader) sealedMember(p events.Place) events.Member {
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

func (r *reader) incarnation(s string, before events.Incarnation) events.Incarnation {
	if s == "" {
		return ""
	}
	b := string(before)
	if len(s) < 2 {
		r.bad = "an incarnation " + s
		return ""
	}
	head, tail := strings.IndexByte(digits36, s[0]), strings.IndexByte(digits36, s[1])
	if head < 0 || tail < 0 || head+tail > len(b) {
		r.bad = "an incarnation " + s
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
