package agent

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/wait"
)

const (
	// chunkSize is the size at which a chunk of output is complete. Larger chunks cost latency,
	// smaller ones a message each.
	chunkSize = 16 << 10
	// mergedSize is the maximum size of chunks merged while the log is slow.
	mergedSize = 256 << 10
)

// logs stores workers' output in chunks. If the log is so slow that the buffer is full, lines are
// dropped: training does not wait for its output. Each gap is marked in the output with the number
// of its lines, at the latest when the worker has ended, and the fact of the exit has the total.
type logs struct {
	opt     Options
	wake    chan struct{}
	mu      sync.Mutex
	open    []*chunk // one per source, in the order of their first line
	full    []*chunk
	waiting int            // bytes in full
	dropped map[source]int // lines since the last one kept
	lost    map[owner]uint64
	left    chan struct{} // closed, and made anew, when a chunk has left full
	seq     uint64
}

// owner identifies the worker incarnation that produced the output.
type owner struct {
	job   events.JobID
	place events.Place
}

// source is what all lines of a chunk have in common.
type source struct {
	job        events.JobID
	place      events.Place
	rank       int
	generation events.Generation
	stream     string
}

type chunk struct {
	source
	data  []byte
	lines int // of the worker
	gaps  int // lines counted by its marks
	id    string
	sent  bool // being sent: must not be changed
}

// gap adds a mark for n missing lines.
func (c *chunk) gap(n int) {
	c.gaps += n
	c.data = fmt.Appendf(c.data, "regroup: %s dropped here, the log store was too slow\n", events.Plural(n, "line"))
}

func newLogs(o Options) *logs {
	return &logs{opt: o, wake: make(chan struct{}, 1), dropped: map[source]int{}, lost: map[owner]uint64{}, left: make(chan struct{})}
}

func (l *logs) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := source{line.Job, line.Place, line.Rank, line.Generation, line.Stream}
	if l.waiting >= l.opt.Config.LogBuffer {
		l.missed(s, 1)
		return
	}
	l.mark(s)
	c := l.chunk(s)
	c.data = append(append(c.data, line.Text...), '\n')
	c.lines++
	if len(c.data) >= chunkSize {
		l.sealLocked()
	}
}

func (l *logs) missed(s source, n int) {
	l.dropped[s] += n
	l.lost[owner{s.job, s.place}] += uint64(n)
}

// mark adds a mark for the lines dropped here, if any.
func (l *logs) mark(s source) {
	if n := l.dropped[s]; n > 0 {
		delete(l.dropped, s)
		l.chunk(s).gap(n)
	}
}

// ended marks the last gap of a worker that has ended, and returns the number of its dropped lines.
func (l *logs) ended(job events.JobID, place events.Place) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := owner{job, place}
	for s := range l.dropped {
		if (owner{s.job, s.place}) == o {
			l.mark(s)
		}
	}
	l.sealLocked()
	n := l.lost[o]
	delete(l.lost, o)
	return n
}

// await waits until the output of a worker that has ended is stored, for a time at most.
func (l *logs) await(job events.JobID, place events.Place, within time.Duration) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		l.mu.Lock()
		waits := slices.ContainsFunc(l.full, func(c *chunk) bool { return c.job == job && c.place == place })
		left := l.left
		l.mu.Unlock()
		if !waits {
			return
		}
		select {
		case <-left:
		case <-timer.C:
			return
		}
	}
}

func (l *logs) chunk(s source) *chunk {
	for _, c := range l.open {
		if c.source == s {
			return c
		}
	}
	c := &chunk{source: s}
	l.open = append(l.open, c)
	return c
}

// sealLocked closes all open chunks, so that lines of different sources roughly keep their order.
func (l *logs) sealLocked() {
	for _, c := range l.open {
		l.waiting += len(c.data)
		if last := l.lastOf(c.source); last != nil && len(last.data)+len(c.data) <= mergedSize {
			last.data, last.lines, last.gaps = append(last.data, c.data...), last.lines+c.lines, last.gaps+c.gaps
			continue
		}
		c.id = l.newID()
		l.full = append(l.full, c)
	}
	if len(l.open) > 0 {
		l.open = nil
		notify(l.wake)
	}
}

func (l *logs) newID() string {
	l.seq++
	return fmt.Sprintf("%s-log-%d", l.opt.Incarnation, l.seq)
}

// lookBack is how many waiting chunks are searched for one of the same source, which limits how far
// lines of other sources can be overtaken.
const lookBack = 16

// lastOf returns the newest waiting chunk of a source that is not being sent, or nil if there is
// none among the newest.
func (l *logs) lastOf(s source) *chunk {
	for i := len(l.full) - 1; i >= max(0, len(l.full)-lookBack); i-- {
		if c := l.full[i]; c.source == s && !c.sent {
			return c
		}
	}
	return nil
}

func (l *logs) seal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.dropped {
		l.mark(s)
	}
	l.sealLocked()
}

func (l *logs) run(ctx context.Context) error {
	t := time.NewTicker(l.opt.Config.LogEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.mu.Lock()
			l.sealLocked()
			l.mu.Unlock()
		case <-l.wake:
		}
		for c := l.first(); c != nil && ctx.Err() == nil; c = l.first() {
			err := l.store(ctx, c)
			if events.CodeOf(err) == events.Unavailable || events.CodeOf(err) == events.Internal || events.CodeOf(err) == events.Cancelled {
				wait.Sleep(ctx, l.opt.Config.LogEvery)
				continue // meanwhile new lines fill the buffer and are dropped there
			}
			l.drop(err)
		}
	}
}

func (l *logs) first() *chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.full) == 0 {
		return nil
	}
	l.full[0].sent = true
	return l.full[0]
}

// drop removes the first chunk: it is stored, or, with an error, never will be.
func (l *logs) drop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.full[0]
	l.waiting -= len(c.data)
	if err == nil || c.lines == 0 { // or it was only a mark
		l.full = l.full[1:]
		close(l.left)
		l.left = make(chan struct{})
		return
	}
	l.opt.Logger.Warn("output dropped", "node", l.opt.Node, "job", c.job, "count", c.lines, "reason", err)
	l.lost[owner{c.job, c.place}] += uint64(c.lines)
	instead := &chunk{source: c.source, id: l.newID()}
	instead.gap(c.lines + c.gaps)
	l.waiting += len(instead.data)
	l.full[0] = instead
}

// drained waits until everything is stored. What is not stored by then is lost with this process,
// which is logged.
func (l *logs) drained(ctx context.Context) {
	for ctx.Err() == nil && l.waits() > 0 {
		wait.Sleep(ctx, 5*time.Millisecond)
	}
	if n := l.waits(); n > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		lines := 0
		for _, c := range l.full {
			lines += c.lines
		}
		l.opt.Logger.Error("output could not be stored before the end", "node", l.opt.Node, "lines", lines, "chunks", n)
	}
}

func (l *logs) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.full)
}

func (l *logs) store(ctx context.Context, c *chunk) error {
	slot := strconv.Itoa(int(c.place.Slot))
	ctx, cancel := context.WithTimeout(ctx, l.opt.Config.CallTimeout)
	defer cancel()
	_, err := l.opt.Ports.Log.Publish(ctx, events.Message{
		Subject: events.LogSubject(c.job, string(c.place.Node), slot), ID: c.id, Data: c.data,
		Header: map[string][]string{
			events.HeaderLogNode: {string(c.place.Node)}, events.HeaderLogSlot: {slot},
			events.HeaderLogRank: {strconv.Itoa(c.rank)}, events.HeaderLogStream: {c.stream},
			events.HeaderLogGeneration: {strconv.FormatUint(uint64(c.generation), 10)},
		},
	})
	return err
}
