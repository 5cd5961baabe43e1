package tables

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/regroup-io/regroup/events/columns"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
)

// WorkerTable holds the workers of a job by place, the newest incarnation of each. In JSON it is a
// table of columns like a MemberTable (places, agents, workers, attempts, pids), with these more:
//
//	"generations": [3], "ranks": [0, 1, 2, 3], "states": "ready", "details": {"2": "killed by signal 9"}, "lines": {"2": ["…"]}
//
// Ranks are -1 if absent; details, lines and exceptions are by row. The job's id is that of the
// document. A plain list of workers is decoded too.
type WorkerTable []WorkerView

// workerColumns is the encoded form of a WorkerTable.
type workerColumns struct {
	workerIdentity
	Generations columns.Column[ident.Generation] `json:"generations,omitempty"`
	Ranks       columns.Column[int]              `json:"ranks,omitempty"`
	States      columns.Texts                    `json:"states,omitempty"`
	Details     map[int]string                   `json:"details,omitempty"`
	Lines       map[int][]string                 `json:"lines,omitempty"`
	Exceptions  map[int]*Exception               `json:"exceptions,omitempty"`
}

// MarshalJSON encodes the columns.
func (c WorkerTable) MarshalJSON() ([]byte, error) {
	if len(c) == 0 {
		return json.Marshal([]WorkerView(c))
	}
	n := len(c)
	t := workerColumns{
		workerIdentity: identityOf(n, func(i int) WorkerRef { return c[i].WorkerRef }),
		Generations:    columns.Make(n, func(i int) ident.Generation { return c[i].Generation }),
		States:         columns.MakeTexts(n, func(i int) WorkerState { return c[i].State }),
		Details:        map[int]string{}, Lines: map[int][]string{}, Exceptions: map[int]*Exception{},
	}
	if slices.ContainsFunc(c, func(w WorkerView) bool { return w.Rank != -1 }) {
		if t.Ranks = columns.Make(n, func(i int) int { return int(c[i].Rank) }); t.Ranks == nil {
			t.Ranks = columns.Column[int]{0}
		}
	}
	for i := range c {
		w := &c[i]
		if w.Detail != "" {
			t.Details[i] = w.Detail
		}
		if len(w.Lines) > 0 {
			t.Lines[i] = w.Lines
		}
		if w.Exception != nil {
			t.Exceptions[i] = w.Exception
		}
	}
	return json.Marshal(t)
}

// UnmarshalJSON decodes both forms.
func (c *WorkerTable) UnmarshalJSON(b []byte) error {
	if isList(b) {
		if err := json.Unmarshal(b, (*[]WorkerView)(c)); err != nil {
			return err
		}
		return tooMany("workers", len(*c), maxWorkers)
	}
	var t workerColumns
	if err := json.Unmarshal(b, &t); err != nil || string(b) == "null" {
		return err
	}
	row, err := t.rows("workers", maxWorkers)
	if err != nil {
		return err
	}
	n := len(t.Places)
	states, err := columns.Split[WorkerState](t.States, n)
	if err = cmp.Or(err, columns.Check(n, t.Generations, t.Ranks)); err != nil {
		return errcode.Errorf(errcode.Invalid, "table of workers: %w", err)
	}
	*c = make(WorkerTable, n)
	for i := range *c {
		w := WorkerView{WorkerRef: row(i), Rank: -1, State: states.At(i), Detail: t.Details[i], Lines: t.Lines[i], Exception: t.Exceptions[i]}
		w.Generation = t.Generations.At(i)
		if len(t.Ranks) > 0 {
			w.Rank = ident.Rank(t.Ranks.At(i))
		}
		(*c)[i] = w
	}
	return nil
}

// maxWorkers limits the workers of one document: those of a job and twice as many that have ended.
var maxWorkers = 3 * limits.Workers.Max
