package events

import (
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/limits"
)

// nodeGroup is the encoded form of one node's workers in a MemberTable or a WorkerTable.
type nodeGroup struct {
	node           NodeID
	places         Places
	agent          Incarnation
	prefix, suffix string
	workers        []string
	attempts, pids []byte
	host           string
	ports          []byte
	addresses      []string
	commits        []byte
	bad            bool  // a list does not have one item per place
	wrong          error // why places were refused
}

// decode decodes the next group. more decodes the members of the JSON object that the group does
// not know, and reports whether it knows them.
func (g *nodeGroup) decode(s *scanner, more func(s *scanner, name string) bool) {
	*g = nodeGroup{places: g.places[:0], workers: g.workers[:0], addresses: g.addresses[:0]}
	s.object(func(name string) {
		if !g.read(s, name) && !more(s, name) {
			s.skip()
		}
	})
}

// read decodes a member of the JSON object; false = it is not a member of a group.
func (g *nodeGroup) read(s *scanner, name string) bool {
	switch name {
	case "node":
		g.node = NodeID(s.text())
	case "slots":
		if g.places, g.wrong = parseRun(g.places[:0], "/"+s.text()); g.wrong != nil {
			s.fail()
		}
	case "agent":
		g.agent = Incarnation(s.text())
	case "prefix":
		g.prefix = s.text()
	case "suffix":
		g.suffix = s.text()
	case "workers":
		g.workers = g.workers[:0]
		s.list(func() { g.workers = append(g.workers, s.text()) })
	case "attempts":
		g.attempts = s.raw()
	case "pids":
		g.pids = s.raw()
	case "host":
		g.host = s.text()
	case "ports":
		g.ports = s.raw()
	case "addresses":
		g.addresses = g.addresses[:0]
		s.list(func() { g.addresses = append(g.addresses, s.text()) })
	case "commits":
		g.commits = s.raw()
	default:
		return false
	}
	return true
}

func (g *nodeGroup) incarnation(i int) Incarnation {
	if len(g.workers) == 0 {
		return ""
	}
	return Incarnation(g.prefix + g.workers[i] + g.suffix)
}

// address returns that of the i-th worker; ports were read from the column.
func (g *nodeGroup) address(i int, ports []int) string {
	switch {
	case len(g.addresses) > 0:
		return g.addresses[i]
	case ports != nil:
		return net.JoinHostPort(g.host, strconv.Itoa(ports[i]))
	}
	return ""
}

// column decodes numbers, one per worker; absent = nil.
func (g *nodeGroup) column(raw []byte) (out []int) {
	if raw == nil {
		return nil
	}
	ok := scan(raw, func(s *scanner) { out = s.numbers(len(g.places)) })
	g.bad = g.bad || !ok || len(out) != len(g.places)
	return out
}

// fits reports whether every list has one item per place.
func (g *nodeGroup) fits() bool {
	n := len(g.places)
	return !g.bad && n > 0 && (len(g.workers) == 0 || len(g.workers) == n) && (len(g.addresses) == 0 || len(g.addresses) == n)
}

func at(column []int, i int) int {
	if column == nil {
		return 0
	}
	return column[i]
}

// UnmarshalJSON decodes both forms.
func (r *MemberTable) UnmarshalJSON(b []byte) error {
	memo := commitMemo{}
	out, plain, err := decodeTable(b, "members", "MemberTable", limits.Workers.Max, memo.decodeMembers)
	if err != nil {
		return err
	}
	if *r = out; !plain {
		r.Number()
	}
	return nil
}

// decodeTable decodes a list of groups, or of single items: plain = there are some. null is nil.
func decodeTable[T any](b []byte, what, typ string, most int, group func(*scanner, *nodeGroup, []T) []T) (out []T, plain bool, _ error) {
	if string(b) == "null" {
		return nil, false, nil
	}
	out = []T{}
	var g nodeGroup
	ok := scan(b, func(s *scanner) {
		s.list(func() {
			if isPlain(s) {
				var x T
				s.value(&x)
				out, plain = append(out, x), true
			} else {
				out = group(s, &g, out)
			}
			if len(out) > most {
				g.wrong = tooManyPlaces(len(out))
				s.fail()
			}
		})
	})
	if !ok && g.wrong == nil {
		g.wrong = Errorf(Invalid, "%s must be a list of groups of one node, see events.%s", what, typ)
	}
	return out, plain, g.wrong
}

// isPlain reports whether the next object is a member and not a group.
func isPlain(s *scanner) bool {
	look := *s
	plain := false
	look.object(func(name string) {
		plain = plain || name == "place"
		look.skip()
		if name == "slots" || name == "place" {
			look.i = len(look.b) // skip the rest
		}
	})
	return plain
}

// commitMemo caches the last column of commits: most nodes hold the same.
type commitMemo struct {
	raw  string
	list []Commit
}

// decodeMembers appends the members of the next group.
func (c *commitMemo) decodeMembers(s *scanner, g *nodeGroup, out []Member) []Member {
	g.decode(s, func(*scanner, string) bool { return false })
	attempts, pids, ports := g.column(g.attempts), g.column(g.pids), g.column(g.ports)
	commits, ok := c.column(g.commits, len(g.places))
	if s.bad || !ok || !g.fits() {
		s.fail()
		return out
	}
	for i, p := range g.places {
		p.Node = g.node
		m := Member{Place: p, Incarnation: g.incarnation(i), Agent: g.agent, Attempt: at(attempts, i), PID: at(pids, i), Address: g.address(i, ports)}
		if commits != nil {
			m.Commit = commits[i]
		}
		out = append(out, m)
	}
	return out
}

func (c *commitMemo) column(raw []byte, n int) ([]Commit, bool) {
	if raw == nil {
		return nil, true
	}
	if string(raw) == c.raw && len(c.list) == n {
		return c.list, true
	}
	c.raw, c.list = string(raw), nil
	ok := scan(raw, func(s *scanner) {
		if s.peek() == '[' {
			s.value(&c.list)
			return
		}
		var one Commit
		s.value(&one)
		c.list = slices.Repeat([]Commit{one}, n)
	})
	return c.list, ok && len(c.list) == n
}

// scanner decodes JSON that is known to be well-formed, without reflection, because long lists of
// members and places are decoded often. Unexpected values set bad and are skipped.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

// scan decodes one JSON value; ok = it had the shape that fn expected.
func scan(b []byte, fn func(*scanner)) (ok bool) {
	s := &scanner{b: b}
	fn(s)
	return !s.bad
}

// peek returns the first byte of the next value or delimiter; 0 = the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) list(fn func()) { s.inside('[', ']', fn) }

func (s *scanner) object(fn func(name string)) {
	s.inside('{', '}', func() {
		name := s.text()
		if s.peek() != ':' {
			s.fail()
			return
		}
		s.i++
		fn(name)
	})
}

func (s *scanner) inside(begin, end byte, fn func()) {
	if s.peek() != begin {
		s.fail()
		return
	}
	for s.i++; !s.bad; {
		switch s.peek() {
		case end:
			s.i++
			return
		case ',':
			s.i++
		case 0:
			s.fail()
		default:
			fn()
		}
	}
}

func (s *scanner) fail() { s.bad, s.i = true, len(s.b) }

// raw returns the next value as it stands.
func (s *scanner) raw() []byte {
	s.peek()
	from := s.i
	s.skip()
	return s.b[from:s.i]
}

func (s *scanner) skip() {
	switch s.peek() {
	case '{':
		s.object(func(string) { s.skip() })
	case '[':
		s.list(s.skip)
	case '"':
		s.quoted()
	case 0, ',', '}', ']', ':':
		s.fail()
	default:
		for s.i < len(s.b) {
			switch s.b[s.i] {
			case ',', '}', ']', ' ', '\t', '\r', '\n':
				return
			}
			s.i++
		}
	}
}

// quoted returns the next string with its quotes and whether it contains an escape.
func (s *scanner) quoted() (raw []byte, escaped bool) {
	if s.peek() != '"' {
		s.fail()
		return nil, false
	}
	from := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			escaped = true
			s.i++
		case '"':
			s.i++
			return s.b[from:s.i], escaped
		}
	}
	s.fail()
	return nil, false
}

func (s *scanner) text() string {
	raw, escaped := s.quoted()
	if s.bad {
		return ""
	}
	if !escaped && utf8.Valid(raw) {
		return string(raw[1 : len(raw)-1])
	}
	var t string
	if json.Unmarshal(raw, &t) != nil {
		s.fail()
	}
	return t
}

func (s *scanner) number() int {
	n, err := strconv.Atoi(string(s.raw()))
	if err != nil {
		s.fail()
	}
	return n
}

func (s *scanner) value(into any) {
	if raw := s.raw(); !s.bad && json.Unmarshal(raw, into) != nil {
		s.fail()
	}
}

// numbers decodes a list, or one number that stands for n equal ones.
func (s *scanner) numbers(n int) []int {
	if s.peek() != '[' {
		return slices.Repeat([]int{s.number()}, n)
	}
	out := make([]int, 0, n)
	s.list(func() { out = append(out, s.number()) })
	return out
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // encoding a string cannot fail
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func alike[T comparable](all []T) bool {
	return !slices.ContainsFunc(all, func(v T) bool { return v != all[0] })
}

func appendList[T any](b []byte, all []T, item func(b []byte, v T) []byte) []byte {
	b = append(b, '[')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, v)
	}
	return append(b, ']')
}

// appendNumbers appends a list, or the one number if all are equal.
func appendNumbers(b []byte, n []int) []byte {
	number := func(b []byte, v int) []byte { return strconv.AppendInt(b, int64(v), 10) }
	if len(n) > 0 && alike(n) {
		return number(b, n[0])
	}
	return appendList(b, n, number)
}
