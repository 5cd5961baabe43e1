package round

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/columns"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// packed is the stored form of what State has for each node and member, of which a job may have
// tens of thousands: tables of columns. Of members that are as the sealed generation has them,
// which most are most of the time, only the places are stored.
type packed struct {
	Nodes     columns.Texts                    `json:"nodes,omitempty"`
	Agents    columns.Texts                    `json:"agents,omitempty"`
	Seniority columns.Column[ident.Generation] `json:"seniority,omitempty"`
	NodeFacts columns.Column[uint64]           `json:"node_facts,omitempty"`
	// The launch last published for each node; revision 0 = none. At is in microseconds.
	Revisions columns.Column[uint64] `json:"revisions,omitempty"`
	Sums      columns.Column[uint64] `json:"sums,omitempty"`
	At        columns.Column[int64]  `json:"at,omitempty"`

	Sealed        ident.Places  `json:"sealed,omitempty"` // of members that are as sealed but for Stopped
	SealedStopped columns.Texts `json:"sealed_stopped,omitempty"`
	Members       memberColumns `json:"members,omitzero"` // the others
}

// memberColumns is a table of Members.
type memberColumns struct {
	Places       ident.Places                  `json:"places,omitempty"`
	States       columns.Texts                 `json:"states,omitempty"`
	Attempts     columns.Column[int]           `json:"attempts,omitempty"`
	Incarnations columns.Texts                 `json:"incarnations,omitempty"`
	Agents       columns.Runs                  `json:"agents,omitzero"`
	Addresses    columns.Texts                 `json:"addresses,omitempty"`
	PIDs         columns.Column[int]           `json:"pids,omitempty"`
	Commits      columns.Column[tables.Commit] `json:"commits,omitempty"`
	Unsynced     columns.Column[bool]          `json:"unsynced,omitempty"`
	Stopped      columns.Texts                 `json:"stopped,omitempty"`
	Leaving      columns.Column[bool]          `json:"leaving,omitempty"`
	RejoinBy     columns.Column[time.Time]     `json:"rejoin_by,omitempty"`
	Unresponsive columns.Column[bool]          `json:"unresponsive,omitempty"`
}

// Pack returns the stored form: the fields that JSON does not have are in Packed.
func (s State) Pack() State {
	s.Packed = s.packNodes()
	var sealed, others []*Member
	for x := range each(s.Members) {
		if r := s.rank(x); r >= 0 && x.isSealedAs(&s.View.Members[r]) {
			sealed = append(sealed, x)
			s.Packed.Sealed = append(s.Packed.Sealed, x.Place)
		} else {
			others = append(others, x)
		}
	}
	s.Packed.SealedStopped = columns.MakeTexts(len(sealed), func(i int) ident.Incarnation { return sealed[i].Stopped })
	s.Packed.Members = memberTable(others)
	s.Members, s.Seniority, s.Agents, s.NodeFacts, s.Published, s.firstRanks, s.unheard = nil, nil, nil, nil, nil, nil, nil
	return s
}

func (s *State) packNodes() *packed {
	var nodes []ident.NodeID
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Seniority))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Agents))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.NodeFacts))
	nodes = slices.AppendSeq(nodes, maps.Keys(s.Published))
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	n := len(nodes)
	return &packed{
		Nodes:     columns.MakeTexts(n, func(i int) ident.NodeID { return nodes[i] }),
		Agents:    columns.MakeTexts(n, func(i int) ident.Incarnation { return s.Agents[nodes[i]] }),
		Seniority: columns.Make(n, func(i int) ident.Generation { return s.Seniority[nodes[i]] }),
		NodeFacts: columns.Make(n, func(i int) uint64 { return s.NodeFacts[nodes[i]] }),
		Revisions: columns.Make(n, func(i int) uint64 { return s.Published[nodes[i]].Revision }),
		Sums:      columns.Make(n, func(i int) uint64 { return s.Published[nodes[i]].Sum }),
		At: columns.Make(n, func(i int) int64 {
			if launch, published := s.Published[nodes[i]]; published {
				return launch.At.UnixMicro()
			}
			return 0
		}),
	}
}

// isSealedAs reports whether all fields of a member except Stopped are those of m.
func (x *Member) isSealedAs(m *tables.Member) bool {
	want := sealedMember(m)
	want.Stopped = x.Stopped
	return *x == want
}

// sealedMember returns the member of the round that has not changed since its generation was
// sealed.
func sealedMember(m *tables.Member) Member {
	return Member{Place: m.Place, State: active, Attempt: m.Attempt, Incarnation: m.Incarnation, Agent: m.Agent, Address: m.Address, PID: m.PID, Commit: m.Commit}
}

func memberTable(all []*Member) memberColumns {
	t := memberColumns{
		Places:       make(ident.Places, len(all)),
		States:       textsOf(all, func(x *Member) memberState { return x.State }),
		Attempts:     columnOf(all, func(x *Member) int { return x.Attempt }),
		Incarnations: textsOf(all, func(x *Member) ident.Incarnation { return x.Incarnation }),
		Agents:       columns.MakeRuns(len(all), func(i int) ident.Incarnation { return all[i].Agent }),
		Addresses:    textsOf(all, func(x *Member) string { return x.Address }),
		PIDs:         columnOf(all, func(x *Member) int { return x.PID }),
		Commits:      columnOf(all, func(x *Member) tables.Commit { return x.Commit }),
		Unsynced:     columnOf(all, func(x *Member) bool { return x.Unsynced }),
		Stopped:      textsOf(all, func(x *Member) ident.Incarnation { return x.Stopped }),
		Leaving:      columnOf(all, func(x *Member) bool { return x.Leaving }),
		RejoinBy:     columnOf(all, func(x *Member) time.Time { return x.RejoinBy }),
		Unresponsive: columnOf(all, func(x *Member) bool { return x.Unresponsive }),
	}
	for i, x := range all {
		t.Places[i] = x.Place
	}
	return t
}

func columnOf[T comparable](all []*Member, field func(*Member) T) columns.Column[T] {
	return columns.Make(len(all), func(i int) T { return field(all[i]) })
}

func textsOf[T ~string](all []*Member, field func(*Member) T) columns.Texts {
	return columns.MakeTexts(len(all), func(i int) T { return field(all[i]) })
}

// Unpack reads the form that Pack writes.
func (s State) Unpack() (State, error) {
	p := s.Packed
	if p == nil {
		return s, nil
	}
	s.Packed = nil
	if err := cmp.Or(s.unpackNodes(p), s.unpackSealed(p), s.unpackMembers(&p.Members)); err != nil {
		return s, errcode.Errorf(errcode.Invalid, "packed nodes: %w", err)
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return a.Place.Compare(b.Place) })
	return s, nil
}

func (s *State) unpackNodes(p *packed) error {
	n := p.Nodes.Len()
	names, wrong := columns.Split[ident.NodeID](p.Nodes, n)
	agents, err := columns.Split[ident.Incarnation](p.Agents, n)
	if err = cmp.Or(wrong, err, columns.Check(n, p.Seniority, p.NodeFacts, p.Revisions, p.Sums, p.At)); err != nil {
		return err
	}
	for i, node := range names {
		if agent := agents.At(i); agent != "" {
			put(&s.Agents, node, agent)
		}
		if g := p.Seniority.At(i); g != 0 {
			put(&s.Seniority, node, g)
		}
		if f := p.NodeFacts.At(i); f != 0 {
			put(&s.NodeFacts, node, f)
		}
		if r := p.Revisions.At(i); r != 0 {
			put(&s.Published, node, PublishedLaunch{Revision: r, Sum: p.Sums.At(i), At: time.UnixMicro(p.At.At(i)).UTC()})
		}
	}
	return nil
}

func (s *State) unpackSealed(p *packed) error {
	stopped, err := columns.Split[ident.Incarnation](p.SealedStopped, len(p.Sealed))
	if err != nil {
		return err
	}
	s.Members = make([]Member, 0, len(p.Sealed)+len(p.Members.Places))
	for i, place := range p.Sealed {
		r := s.rankAt(place)
		if r < 0 {
			return fmt.Errorf("the sealed generation has no member at %s", place)
		}
		x := sealedMember(&s.View.Members[r])
		x.Stopped = stopped.At(i)
		s.Members = append(s.Members, x)
	}
	return nil
}

func (s *State) unpackMembers(t *memberColumns) error {
	n := len(t.Places)
	states, err1 := columns.Split[memberState](t.States, n)
	incarnations, err2 := columns.Split[ident.Incarnation](t.Incarnations, n)
	agents, err3 := columns.Expand[ident.Incarnation](t.Agents, n)
	addresses, err4 := columns.Split[string](t.Addresses, n)
	stopped, err5 := columns.Split[ident.Incarnation](t.Stopped, n)
	err := columns.Check(n, t.Attempts, t.PIDs, t.Commits, t.Unsynced, t.Leaving, t.RejoinBy, t.Unresponsive)
	if err = cmp.Or(err1, err2, err3, err4, err5, err); err != nil {
		return err
	}
	for i, place := range t.Places {
		s.Members = append(s.Members, Member{
			Place: place, State: states.At(i), Attempt: t.Attempts.At(i), Incarnation: incarnations.At(i), Agent: agents.At(i), Address: addresses.At(i), PID: t.PIDs.At(i),
			Commit: t.Commits.At(i), Unsynced: t.Unsynced.At(i), Stopped: stopped.At(i), Leaving: t.Leaving.At(i), RejoinBy: t.RejoinBy.At(i), Unresponsive: t.Unresponsive.At(i),
		})
	}
	return nil
}
