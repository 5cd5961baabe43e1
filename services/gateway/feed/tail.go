package feed

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Bounds of the newest output that is kept for the readers of one job.
const (
	tailBytes = 2 << 20
	tailLines = 1 << 14
)

// tails are the shared readers of output, one for each job whose output is read.
type tails struct {
	feed *Feed
	mu   sync.Mutex
	jobs map[ident.JobID]*Tail
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
func (f *Feed) Tail(job ident.JobID) (t *Tail, leave func()) {
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
			err := f.ports.Log.Follow(ctx, cluster.OutputOf(job, "", 0), func(m broker.Stored) error {
				for i, l := range view.Lines(job, m) {
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
func (f *Feed) Lines(ctx context.Context, job ident.JobID, node ident.NodeID, from uint64, fn func(position uint64, l view.Line) error) error {
	return cluster.ReadStored(ctx, f.ports.Log, cluster.OutputOf(job, node, from), func(m broker.Stored) error {
		for i, l := range view.Lines(job, m) {
			if err := fn(Position(m.Sequence, i), l); err != nil {
				return err
			}
		}
		return nil
	})
}
