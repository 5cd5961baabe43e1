package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/escape"
)

// Line is one line of a worker's output.
type Line struct {
	Time       time.Time         `json:"time"` // the store's clock
	Job        events.JobID      `json:"job"`
	Place      events.Place      `json:"place"`
	Rank       int               `json:"rank"`       // -1 = not yet in a generation
	Generation events.Generation `json:"generation"` // 0 = not yet in one
	Stream     string            `json:"stream,omitempty"`
	Text       string            `json:"text"`           // with its colours
	Open       bool              `json:"open,omitempty"` // it is not finished: the next line of the place and the stream replaces it
	Sequence   uint64            `json:"sequence"`       // of the chunk in the log stream
}

// MarshalJSON writes null for the rank of a worker that is in no generation yet.
func (l Line) MarshalJSON() ([]byte, error) {
	type plain Line
	out := struct {
		plain
		Rank *int `json:"rank"`
	}{plain: plain(l)}
	if l.Rank >= 0 {
		out.Rank = &l.Rank
	}
	return json.Marshal(out)
}

// LogsFrom selects the output to read.
type LogsFrom struct {
	Node   events.NodeID // empty = all
	After  uint64        // only chunks after this sequence; 0 = from the first
	Follow bool          // continue with new lines
}

// Logs calls fn with the lines of a job's output in the order in which they were stored. It blocks
// until all stored lines were seen or, with Follow, until fn returns an error; ErrStop ends it
// without one. Without Follow open lines are left out, but those that nothing has replaced come
// last.
func (c *Client) Logs(ctx context.Context, job events.JobID, from LogsFrom, fn func(Line) error) error {
	node := cmp.Or(string(from.Node), "*")
	names := &ranks{client: c, job: job}
	f := events.Follow{Stream: events.StreamLogs, Subjects: []string{events.LogSubject(job, node, "*")}, Start: events.FromFirst}
	if from.After > 0 {
		f.Start, f.Sequence = events.FromSequence, from.After+1
	}
	var unfinished output.Unfinished[Line]
	stopped := false
	err := c.read(ctx, *c.at.Load(), f, !from.Follow, func(s events.Stored) error {
		place, ok := placeOf(s.Subject)
		if !ok {
			return nil
		}
		l := Line{Time: s.Time, Job: job, Place: place, Sequence: s.Sequence}
		l.label(ctx, s.Header, names)
		for x := range output.Lines(s.Data) {
			l.Text, l.Open = x.Text, x.Open
			c.showLine(&l)
			if !from.Follow {
				unfinished.Take(l.Source(), l.Open, l)
				if l.Open {
					continue
				}
			}
			if err := fn(l); err != nil {
				stopped = true
				return err
			}
		}
		return nil
	})
	if err != nil || stopped {
		return err
	}
	for _, l := range unfinished.All() {
		if err := fn(l); errors.Is(err, ErrStop) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// showLine is show, but leaves the colours of the text as they are.
func (c *Client) showLine(l *Line) {
	if !c.Exact {
		text := escape.Output(l.Text, true)
		c.show(l)
		l.Text = text
	}
}

// Source returns where the line comes from: the next one from there replaces it if it is open.
func (l Line) Source() output.Source { return output.Source{Place: l.Place, Stream: l.Stream} }

// placeOf reads node and slot from the end of a log subject.
func placeOf(subject string) (events.Place, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return events.Place{}, false
	}
	slot, err := strconv.Atoi(parts[len(parts)-1])
	return events.Place{Node: events.NodeID(parts[len(parts)-2]), Slot: events.Slot(slot)}, err == nil
}

// label fills in the labels that the agent added to the chunk: rank -1 is a worker that is in no
// generation yet. Without it (output that another program stored) rank and generation are those of
// the slot at the time.
func (l *Line) label(ctx context.Context, h map[string][]string, names *ranks) {
	l.Stream = first(h[events.HeaderLogStream])
	rank, err := strconv.Atoi(first(h[events.HeaderLogRank]))
	g, wrong := strconv.ParseUint(first(h[events.HeaderLogGeneration]), 10, 64)
	if err == nil && wrong == nil {
		l.Rank, l.Generation = rank, events.Generation(g)
		return
	}
	l.Rank, l.Generation = names.at(ctx, l.Place, l.Time)
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// ranks maps slots and times to ranks.
type ranks struct {
	client *Client
	job    events.JobID
	gens   []events.GenerationView
	loaded time.Time // on the store's clock: time of the newest line for which the job was read
}

// at reads the job again at most once per second of output, so a new generation is noticed within a
// second of its output.
func (r *ranks) at(ctx context.Context, p events.Place, t time.Time) (int, events.Generation) {
	if r.loaded.IsZero() || t.Sub(r.loaded) > time.Second {
		r.loaded = t
		if v, err := load[events.JobView](ctx, r.client, events.BucketJobs, string(r.job)); err == nil {
			r.gens = v.Generations
		}
	}
	for i := len(r.gens) - 1; i >= 0; i-- {
		g := r.gens[i]
		if g.Sealed.After(t) {
			continue
		}
		for _, m := range g.Members {
			if m.Place == p {
				return m.Rank, g.Generation
			}
		}
		return -1, 0
	}
	return -1, 0
}
