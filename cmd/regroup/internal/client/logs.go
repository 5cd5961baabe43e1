package client

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Line is one line of a worker's output.
type Line struct {
	Time       time.Time         `json:"time"` // the store's clock
	Job        events.JobID      `json:"job"`
	Place      events.Place      `json:"place"`
	Rank       int               `json:"rank"`       // -1 = not yet in a generation
	Generation events.Generation `json:"generation"` // 0 = not yet in one
	Stream     string            `json:"stream,omitempty"`
	Text       string            `json:"text"`
	Sequence   uint64            `json:"sequence"` // of the chunk in the log stream
}

// LogsFrom says which output to read.
type LogsFrom struct {
	Node   events.NodeID // empty = all
	Slot   string        // empty = all
	After  uint64        // only chunks after this sequence; 0 = from the first
	Follow bool          // go on with what comes
}

// Logs calls fn with the lines of a job's output in the order in which they were stored. Ranks and generations are those
// that the place had when the line was stored. It blocks until all stored lines were seen or, with Follow, until fn
// returns an error; Stop() ends it without one.
func (c *Client) Logs(ctx context.Context, job events.JobID, from LogsFrom, fn func(Line) error) error {
	node, slot := "*", "*"
	if from.Node != "" {
		node = string(from.Node)
	}
	if from.Slot != "" {
		slot = from.Slot
	}
	names := &ranks{client: c, job: job}
	f := events.Follow{Stream: events.StreamLogs, Subjects: []string{events.LogSubject(job, node, slot)}, Start: events.FromFirst}
	if from.After > 0 {
		f.Start, f.Sequence = events.FromSequence, from.After+1
	}
	return c.read(ctx, f, !from.Follow, func(s events.Stored) error {
		place, ok := placeOf(s.Subject)
		if !ok {
			return nil
		}
		l := Line{Time: s.Time, Job: job, Place: place, Sequence: s.Sequence}
		l.Rank, l.Generation = names.at(ctx, place, s.Time)
		for _, p := range chunk(s.Data) {
			l.Stream, l.Text = p.stream, p.text
			if err := fn(l); err != nil {
				return err
			}
		}
		return nil
	})
}

// placeOf reads node and slot from the end of a log subject.
func placeOf(subject string) (events.Place, bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 2 {
		return events.Place{}, false
	}
	slot, err := strconv.Atoi(parts[len(parts)-1])
	return events.Place{Node: events.NodeID(parts[len(parts)-2]), Slot: events.Slot(slot)}, err == nil
}

type piece struct{ stream, text string }

// chunk splits the payload of a log message: whole lines of text, or a JSON object {"stream","lines"}. A program that
// prints JSON of its own has no "lines" list with a "stream" beside it.
func chunk(data []byte) []piece {
	var c struct {
		Stream *string  `json:"stream"`
		Lines  []string `json:"lines"`
	}
	if len(data) > 0 && data[0] == '{' && json.Unmarshal(data, &c) == nil && c.Stream != nil && c.Lines != nil {
		out := make([]piece, 0, len(c.Lines))
		for _, l := range c.Lines {
			out = append(out, piece{*c.Stream, l})
		}
		return out
	}
	var out []piece
	for l := range strings.Lines(string(data)) {
		out = append(out, piece{"", strings.TrimRight(l, "\r\n")})
	}
	return out
}

// ranks knows which rank a place had at what time.
type ranks struct {
	client *Client
	job    events.JobID
	gens   []events.GenerationView
	loaded time.Time // on the store's clock: newest line for which the job was looked up
}

// at reads the job again at most once per second of output: a new generation is seen when it has printed for so long.
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
