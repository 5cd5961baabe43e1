package tables

import (
	"cmp"
	"encoding/json"

	"github.com/regroup-io/regroup/events/columns"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
)

// MemberTable holds the members of a generation, in order of rank. In JSON it is a table of
// columns, because a generation may have tens of thousands of them:
//
//	{"places": ["node-a/0-3"], "agents": {"values": "01JD…", "counts": [4]}, "workers": "01JE… 01JF… 01JG… 01JH…", "attempts": [1],
//	  "pids": [71, 72, 73, 74], "addresses": "10.0.0.7:4001 10.0.0.7:4002 …", "commits": [{"generation": 2, "step": 940, "hash": "9f…"}]}
//
// Ranks count up; local ranks count within a node. One value alone stands for all members, and
// absent columns are zero or empty (package columns). A table whose ranks do not
// follow from the order is a plain list of members, which is decoded too.
type MemberTable []Member

// memberColumns is the encoded form of a MemberTable.
type memberColumns struct {
	workerIdentity
	Addresses columns.Texts          `json:"addresses,omitempty"`
	Commits   columns.Column[Commit] `json:"commits,omitempty"`
}

// workerIdentity are the columns that MemberTable and WorkerTable have in common.
type workerIdentity struct {
	Places   rowPlaces           `json:"places"`
	Agents   columns.Runs        `json:"agents"`
	Workers  columns.Texts       `json:"workers,omitempty"`
	Attempts columns.Column[int] `json:"attempts,omitempty"`
	PIDs     columns.Column[int] `json:"pids,omitempty"`
}

// rowPlaces are the places of the rows of a table, which may be more than one job has.
type rowPlaces ident.Places

// MarshalJSON encodes them as Places.
func (p rowPlaces) MarshalJSON() ([]byte, error) { return ident.Places(p).MarshalJSON() }

// UnmarshalJSON decodes them as Places.
func (p *rowPlaces) UnmarshalJSON(b []byte) error {
	places, err := ident.ParsePlaces(b, maxWorkers)
	*p = rowPlaces(places)
	return err
}

func identityOf(n int, of func(i int) WorkerRef) workerIdentity {
	t := workerIdentity{
		Places:   make(rowPlaces, n),
		Agents:   columns.MakeRuns(n, func(i int) ident.Incarnation { return of(i).Agent }),
		Workers:  columns.MakeTexts(n, func(i int) ident.Incarnation { return of(i).Incarnation }),
		Attempts: columns.Make(n, func(i int) int { return of(i).Attempt }),
		PIDs:     columns.Make(n, func(i int) int { return of(i).PID }),
	}
	for i := range t.Places {
		t.Places[i] = of(i).Place
	}
	return t
}

// rows checks that the columns are of equal length, and returns what each row identifies.
func (t *workerIdentity) rows(what string, most int) (row func(i int) WorkerRef, err error) {
	n := len(t.Places)
	if err := tooMany(what, n, most); err != nil {
		return nil, err
	}
	agents, wrong := columns.Expand[ident.Incarnation](t.Agents, n)
	incarnations, err := columns.Split[ident.Incarnation](t.Workers, n)
	if err = cmp.Or(wrong, err, columns.Check(n, t.Attempts, t.PIDs)); err != nil {
		return nil, errcode.Errorf(errcode.Invalid, "table of %s: %w", what, err)
	}
	return func(i int) WorkerRef {
		return WorkerRef{Place: t.Places[i], Agent: agents.At(i), Incarnation: incarnations.At(i), Attempt: t.Attempts.At(i), PID: t.PIDs.At(i)}
	}, nil
}

// isList reports whether a table is in its plain form.
func isList(b []byte) bool { return len(b) > 0 && b[0] == '[' }

// MarshalJSON encodes the columns, or the plain list where there is nothing to gain or ranks do not
// follow from the order.
func (r MemberTable) MarshalJSON() ([]byte, error) {
	if len(r) == 0 || !r.ordered() {
		return json.Marshal([]Member(r))
	}
	return json.Marshal(memberColumns{
		workerIdentity: identityOf(len(r), func(i int) WorkerRef {
			return WorkerRef{Place: r[i].Place, Agent: r[i].Agent, Incarnation: r[i].Incarnation, Attempt: r[i].Attempt, PID: r[i].PID}
		}),
		Addresses: columns.MakeTexts(len(r), func(i int) string { return r[i].Address }),
		Commits:   columns.Make(len(r), func(i int) Commit { return r[i].Commit }),
	})
}

// UnmarshalJSON decodes both forms.
func (r *MemberTable) UnmarshalJSON(b []byte) error {
	if isList(b) {
		if err := json.Unmarshal(b, (*[]Member)(r)); err != nil {
			return err
		}
		return tooMany("members", len(*r), limits.Workers.Max)
	}
	var t memberColumns
	if err := json.Unmarshal(b, &t); err != nil || string(b) == "null" {
		return err
	}
	row, err := t.rows("members", limits.Workers.Max)
	if err != nil {
		return err
	}
	n := len(t.Places)
	addresses, err := columns.Split[string](t.Addresses, n)
	if err = cmp.Or(err, t.Commits.Check(n)); err != nil {
		return errcode.Errorf(errcode.Invalid, "table of members: %w", err)
	}
	*r = make(MemberTable, n)
	for i := range *r {
		w := row(i)
		(*r)[i] = Member{Place: w.Place, Incarnation: w.Incarnation, Agent: w.Agent, Attempt: w.Attempt, PID: w.PID, Address: addresses.At(i), Commit: t.Commits.At(i)}
	}
	r.Number()
	return nil
}

// ordered reports whether ranks, local ranks and cross ranks follow from the order.
func (r MemberTable) ordered() bool {
	derived, seen := make(MemberTable, len(r)), map[ident.NodeID]bool{}
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
		if int(m.Rank) != i || m.LocalRank != d.LocalRank || m.LocalSize != d.LocalSize || m.CrossRank != d.CrossRank ||
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
			m.Rank, m.LocalRank, m.LocalSize, m.CrossRank = ident.Rank(i+l), l, n, sizes[l]
			sizes[l]++
		}
	}
	for i := range r {
		r[i].CrossSize = sizes[r[i].LocalRank]
	}
}

// tooMany returns an error if there are more than so many.
func tooMany(what string, n, most int) error {
	if n > most {
		return errcode.Errorf(errcode.Invalid, "%d %s or more (%s)", n, what, limits.Workers)
	}
	return nil
}
