package events

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/spec"
)

// PoolView is the scheduler's only document. What it says of a job that is queued is one short line, because tens of thousands
// may be.
type PoolView struct {
	Jobs  map[JobID]PlacementView // every job that has not ended
	Queue []JobID                 // those that wait to be placed, in the order in which they are served

	Head     JobID  // the queued job that the others wait behind; empty = none
	Capacity string // what is free and what is not to be used, in a sentence
	MaxSlots int    // slots that a job could ever get as the nodes are now
}

// poolJSON is its stored form. A version without a queue has all rows in Jobs.
type poolJSON struct {
	Jobs    map[JobID]PlacementView `json:"jobs"`
	Queue   string                  `json:"queue,omitempty"`   // a line for each: job min max, and the number of its reason
	Reasons []string                `json:"reasons,omitempty"` // of the queue
	Holder  JobID                   `json:"holder,omitempty"`
	Room    string                  `json:"room,omitempty"`
	Most    int                     `json:"most,omitempty"`
}

// MarshalJSON writes the stored form.
func (p PoolView) MarshalJSON() ([]byte, error) {
	out := poolJSON{Holder: p.Head, Room: p.Capacity, Most: p.MaxSlots, Jobs: make(map[JobID]PlacementView, len(p.Jobs)-len(p.Queue))}
	queued := make(map[JobID]bool, len(p.Queue))
	reasons := map[string]int{}
	text := make([]byte, 0, 32*len(p.Queue))
	for _, id := range p.Queue {
		row, ok := p.Jobs[id]
		if !ok || len(row.Places) > 0 {
			continue
		}
		n, known := reasons[row.Waiting]
		if !known {
			n = len(out.Reasons)
			reasons[row.Waiting], out.Reasons = n, append(out.Reasons, row.Waiting)
		}
		queued[id] = true
		text = append(append(text, id...), ' ')
		text = append(strconv.AppendInt(text, int64(row.Workers.Min), 10), ' ')
		text = append(strconv.AppendInt(text, int64(row.Workers.Max), 10), ' ')
		text = append(strconv.AppendInt(text, int64(n), 10), '\n')
	}
	for id, row := range p.Jobs {
		if !queued[id] {
			out.Jobs[id] = row
		}
	}
	out.Queue = string(text)
	return json.Marshal(out)
}

// UnmarshalJSON reads the stored form.
func (p *PoolView) UnmarshalJSON(b []byte) error {
	var in poolJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = PoolView{Jobs: in.Jobs, Head: in.Holder, Capacity: in.Room, MaxSlots: in.Most}
	if p.Jobs == nil {
		p.Jobs = map[JobID]PlacementView{}
	}
	for line := range strings.Lines(in.Queue) {
		f := strings.Fields(line)
		if len(f) != 4 {
			return Errorf(Invalid, "queue: %q is no line of a job, its workers and its reason", shortened(line))
		}
		low, errLow := strconv.Atoi(f[1])
		high, errHigh := strconv.Atoi(f[2])
		n, errReason := strconv.Atoi(f[3])
		if errLow != nil || errHigh != nil || errReason != nil || n < 0 || n >= len(in.Reasons) {
			return Errorf(Invalid, "queue: %q is no line of a job, its workers and its reason", shortened(line))
		}
		id := JobID(f[0])
		p.Jobs[id] = PlacementView{Workers: spec.Workers{Min: low, Max: high}, Waiting: in.Reasons[n]}
		p.Queue = append(p.Queue, id)
	}
	return nil
}

// shortened is the beginning of a text, for an error.
func shortened(s string) string { return s[:min(len(s), 80)] }
