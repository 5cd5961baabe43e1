package events

import (
	"encoding/json"
	"strconv"
)

// scanner reads JSON that is known to be well-formed, without reflection: long lists of members and places are read for
// every turn of a judge. What does not fit the reader's expectation sets bad and is passed over.
type scanner struct {
	b   []byte
	i   int
	bad bool
}

// scan walks one JSON value; ok = it had the shape that fn expected.
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

// list calls fn at each item.
func (s *scanner) list(fn func()) { s.inside('[', ']', fn) }

// object calls fn at the value of each member.
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

// skip passes over the next value.
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

// quoted returns the next string with its quotes and whether it holds an escape.
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
	if !escaped {
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

// numbers reads a list, or one number that stands for n equal ones.
func (s *scanner) numbers(n int) []int {
	if s.peek() != '[' {
		return repeated(s.number(), n)
	}
	out := make([]int, 0, n)
	s.list(func() { out = append(out, s.number()) })
	return out
}

func repeated(v, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// appendText writes a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // no string fails
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendNumbers writes a list, or the one number if all are equal.
func appendNumbers(b []byte, n []int) []byte {
	same := true
	for _, v := range n {
		same = same && v == n[0]
	}
	if same && len(n) > 0 {
		return strconv.AppendInt(b, int64(n[0]), 10)
	}
	b = append(b, '[')
	for i, v := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return append(b, ']')
}
