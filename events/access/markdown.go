package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events/ident"
)

// Header is the first line of the table that Markdown returns.
const Header = "| subject | may publish | may subscribe | at most |\n"

// placeholder stands for the id of an agent's own node, and for the name of an identity.
const placeholder = "own"

// Markdown renders the permissions of all roles that do not consist of others: a row for each
// subject, and their amounts.
func Markdown() string {
	type cell struct{ publish, subscribe, except []string }
	rows := map[string]*cell{}
	at := func(subject string) *cell {
		subject = strings.ReplaceAll(subject, placeholder, "<"+placeholder+">")
		if rows[subject] == nil {
			rows[subject] = &cell{}
		}
		return rows[subject]
	}
	for _, r := range Roles() {
		if r == RoleAll {
			continue
		}
		i := Identity{Role: r, Name: placeholder}
		if r.OfNode() {
			i.Node = ident.NodeID(placeholder)
		}
		p, err := Of(i)
		if err != nil {
			return err.Error() // TestMarkdown shows it
		}
		if r == RoleParticipant { // what it has beyond its parts
			for _, part := range r.parts()[1:] {
				of, _ := Of(Identity{Role: part, Name: placeholder, Node: map[bool]ident.NodeID{true: placeholder}[part.OfNode()]})
				p = p.without(of)
			}
		}
		for _, s := range p.Publish {
			at(s).publish = append(at(s).publish, string(r))
		}
		for _, s := range p.Deny {
			at(s).except = append(at(s).except, string(r))
		}
		for _, s := range p.Subscribe {
			at(s).subscribe = append(at(s).subscribe, string(r))
		}
	}
	var b strings.Builder
	b.WriteString(Header + "|---|---|---|---|\n")
	for _, s := range slices.Sorted(maps.Keys(rows)) {
		c := rows[s]
		if len(c.publish) == 0 && len(c.subscribe) == 0 {
			continue // an exception alone
		}
		b.WriteString("| `" + s + "` | " + names(c.publish) + " | " + names(c.subscribe) + " | " + amount(s) + " |\n")
	}
	return b.String() + "\nOf an identity, at the same time:\n\n" + amounts()
}

// names joins roles; all of them are shortened.
func names(roles []string) string {
	if len(roles) == len(Roles())-2 || len(roles) == len(Roles())-1 { // without those that consist of others
		return "every role"
	}
	return strings.Join(roles, ", ")
}

func (p Permissions) without(q Permissions) Permissions {
	not := func(of []string) func(string) bool {
		return func(s string) bool { return slices.Contains(of, s) }
	}
	p.Publish = slices.DeleteFunc(slices.Clone(p.Publish), not(q.Publish))
	p.Deny = slices.DeleteFunc(slices.Clone(p.Deny), not(q.Deny))
	p.Subscribe = slices.DeleteFunc(slices.Clone(p.Subscribe), not(q.Subscribe))
	return p
}
