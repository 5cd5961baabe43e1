package access

import (
	"slices"
	"strings"
)

// Outside reports whether identities of this role are in an account of their own, apart from that
// of the streams: those of people, and of gateways, which act for people. In the account of the
// streams whoever sends a request names the subject of the answer, which is a message like any
// other: it can be stored in a stream, or as a document. Between accounts the broker keeps that
// subject to itself, and answers within the account of the sender.
func (r Role) Outside() bool { return r == RoleClient || r == RoleViewer || r == RoleGateway }

// Imports are what the account of those outside imports from the account of the streams. No pattern
// includes another one of its list.
type Imports struct {
	Services []string // what it may publish, and what it may ask for one answer
	Repeated []string // what it may ask for many answers: the next messages of a consumer
	Streams  []string // what it may subscribe to, and what its consumers deliver
}

// ImportsOfOutside returns what the roles outside need together. Each of them may use of it what
// its own permissions have.
func ImportsOfOutside() (Imports, error) {
	all := Imports{Streams: []string{inboxOutside + "*.>"}}
	for _, r := range Roles() {
		if !r.Outside() {
			continue
		}
		i := Identity{Role: r, Name: placeholder}
		p, err := Of(i)
		if err != nil {
			return all, err
		}
		for _, s := range p.Publish {
			if strings.HasPrefix(s, apiConsumerNext) {
				all.Repeated = append(all.Repeated, s)
			} else {
				all.Services = append(all.Services, s)
			}
		}
		for _, s := range p.Subscribe {
			if s != i.InboxPrefix()+".>" {
				all.Streams = append(all.Streams, s)
			}
		}
	}
	all.Services, all.Repeated, all.Streams = widest(all.Services), widest(all.Repeated), widest(all.Streams)
	return all, nil
}

// widest returns the patterns that no other one includes, sorted.
func widest(patterns []string) []string {
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	return slices.DeleteFunc(slices.Clone(patterns), func(p string) bool {
		return slices.ContainsFunc(patterns, func(q string) bool { return q != p && includes(q, p) })
	})
}

// includes reports whether a pattern matches each subject that another one matches.
func includes(pattern, other string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(other, ".")
	for n, token := range want {
		switch {
		case token == ">":
			return len(have) > n
		case n >= len(have), have[n] == ">", token != "*" && token != have[n]:
			return false
		}
	}
	return len(want) == len(have)
}
