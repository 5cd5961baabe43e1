package plan

import (
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events"
)

// Pack makes the stored form. Of a job that waits, as ten thousand may, the view says nearly all; what is left is one word in Order:
// the number of the fact that said how many workers it wants, in base 36. "=" stands for the next one of Queue.
func (s State) Pack() State {
	order := make([]byte, 0, 2*len(s.Queue))
	var rest []Job
	for i := range s.Queue {
		j := &s.Queue[i]
		if i > 0 {
			order = append(order, ' ')
		}
		if j.queued() && *j == (Job{ID: j.ID, Submitted: true, Workers: j.Workers}) && s.View.Jobs[j.ID].Waiting != "" {
			order = strconv.AppendUint(order, j.Workers, 36)
			continue
		}
		order, rest = append(order, '='), append(rest, *j)
	}
	s.Order, s.Queue, s.index, s.touched = string(order), rest, nil, nil
	return s
}

// queued tells whether a job waits to be placed: those are listed in the view, in order.
func (j *Job) queued() bool { return j.Submitted && !j.Placed }

// Unpack reads the stored form, also that of a version that stored all of every job.
func (s State) Unpack() (State, error) {
	if s.Order == "" {
		if s.View.Queue = nil; len(s.Queue) > 0 {
			for i := range s.Queue {
				if j := &s.Queue[i]; j.queued() {
					s.View.Queue = append(s.View.Queue, j.ID)
				}
			}
		}
		return s, nil
	}
	words := strings.Fields(s.Order)
	queue, rest, ids := make([]Job, 0, len(words)), s.Queue, s.View.Queue
	next := func() (id events.JobID) {
		if len(ids) > 0 {
			id, ids = ids[0], ids[1:]
		}
		return id
	}
	for _, w := range words {
		if w == "=" {
			if len(rest) == 0 {
				return s, events.Errorf(events.Invalid, "the order names more jobs than there are")
			}
			if rest[0].queued() {
				next()
			}
			queue, rest = append(queue, rest[0]), rest[1:]
			continue
		}
		number, err := strconv.ParseUint(w, 36, 64)
		id := next()
		if err != nil || id == "" {
			return s, events.Errorf(events.Invalid, "the order names %q, which is no job of the queue", w)
		}
		queue = append(queue, Job{ID: id, Submitted: true, Workers: number})
	}
	s.Queue, s.Order = queue, ""
	return s, nil
}
