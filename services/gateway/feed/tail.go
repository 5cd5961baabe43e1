package feed

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/output"
)

// Bounds of the newest output that is kept for the readers of one job.
const (
	tailBytes = 2 << 20
	tailLines = 1 << 14
)

// Line is one line of a worker's output.
type Line struct {
	Time       time.Time         `json:"time"` // the broker's clock
	Job        events.JobID      `json:"job"`
	Place      events.Place      `json:"place"`
	Rank       *int              `json:"rank"`       // null = in no generation yet
	Generation events.Generation `json:"generation"` // 0 = in none yet
	Stream     string            `json:"stream,omitempty"`
	Text       string            `json:"text"`           // with the colours of terminals that it has
	Open       bool              `json:"open,omitempty"` // it is not finished: the next line of the place and the stream replaces it
	Sequence   uint64            `json:"sequence"`       // of its chunk in the stream of output
}

// Source returns where the line comes from.
func (l Line) Source() output.Source { return output.Source{Place: l.Place, Stream: l.Stream} }

// tails are the shared readers of output, one for each job that somebody reads.
type tails struct {
	feed *Feed
	mu   sync.Mutex
	jobs map[events.JobID]*Tail
}

// Tail is the newest output of a job, which several clients share.
type Tail struct {
	Ring    *Ring
	Read    chan struct{} // closed once the stored output was read
	readers int
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// Tail returns the shared tail of a job, which is filled from the oldest stored output on; leave
// must be called once. The sequence of an item is Position.
func (f *Feed) Tail(job events.JobID) (t *Tail, leave func()) {
	s := &f.tails
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.jobs[job]
	if t == nil {
		t = &Tail{Ring: NewRing(tailLines, tailBytes), Read: make(chan struct{})}
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		s.jobs[job] = t
		t.done.Go(func() {
			open := map[output.Source]uint64{} // positions of lines that are not finished
			err := f.ports.Log.Follow(ctx, follow(job, "", 0), func(m events.Stored) error {
				for i, l := range lines(job, m) {
					data, err := json.Marshal(l)
					if err != nil {
						continue
					}
					at, of := Position(m.Sequence, i), l.Source()
					t.Ring.Replace(open[of], Item{Sequence: at, Kind: "line", Job: job, Data: data})
					if delete(open, of); l.Open {
						open[of] = at
					}
				}
				return nil
			}, func() { close(t.Read) })
			if ctx.Err() == nil {
				f.warn("output of "+string(job), err)
			}
		})
	}
	t.readers++
	return t, func() {
		s.mu.Lock()
		t.readers--
		last := t.readers == 0
		if last {
			delete(s.jobs, job)
		}
		s.mu.Unlock()
		if last {
			t.stop()
			t.done.Wait()
		}
	}
}

// lineBits is how much of a position counts the lines of a chunk, which has at most limits.Message
// bytes.
const lineBits = 20

// Position orders lines: by chunk, and in it by number from 0.
func Position(chunk uint64, line int) uint64 { return chunk<<lineBits | uint64(line) }

// ChunkOf returns the chunk of a position.
func ChunkOf(position uint64) uint64 { return position >> lineBits }

// Lines calls fn with the stored lines of a job from a chunk on, of one node or, if that is empty,
// of all, and with their positions.
func (f *Feed) Lines(ctx context.Context, job events.JobID, node events.NodeID, from uint64, fn func(position uint64, l Line) error) error {
	return untilCaughtUp(ctx, f.ports.Log, follow(job, node, from), func(m events.Stored) error {
		for i, l := range lines(job, m) {
			if err := fn(Position(m.Sequence, i), l); err != nil {
				return err
			}
		}
		return nil
	})
}

func follow(job events.JobID, node events.NodeID, from uint64) events.Follow {
	of := string(node)
	if of == "" {
		of = "*"
	}
	return events.Follow{Stream: events.StreamLogs, Subjects: []string{events.LogSubject(job, of, "*")}, Start: events.FromSequence, Sequence: max(1, from)}
}

// lines splits a chunk.
func lines(job events.JobID, m events.Stored) (all []Line) {
	l := Line{Time: m.Time, Job: job, Sequence: m.Sequence, Stream: first(m.Header[events.HeaderLogStream])}
	parts := strings.Split(m.Subject, ".")
	if len(parts) < 2 {
		return nil
	}
	slot, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return nil
	}
	l.Place = events.Place{Node: events.NodeID(parts[len(parts)-2]), Slot: events.Slot(slot)}
	if rank, err := strconv.Atoi(first(m.Header[events.HeaderLogRank])); err == nil && rank >= 0 {
		l.Rank = &rank
	}
	if g, err := strconv.ParseUint(first(m.Header[events.HeaderLogGeneration]), 10, 64); err == nil {
		l.Generation = events.Generation(g)
	}
	for x := range output.Lines(m.Data) {
		l.Text, l.Open = x.Text, x.Open
		all = append(all, l)
	}
	return all
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
