package agent

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/regroup-io/regroup/agent/lines"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
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
// dropped: training does not wait for its output. Of these the newest are kept, and stored after
// the gap, which is marked in the output with the number of its lines, at the latest when the
// worker has ended; the fact of the exit has the total.
type logs struct {
	opt     Options
	pace    *rate.Limiter // of what is stored; nil = none
	wake    chan struct{}
	mu      sync.Mutex
	open    []*chunk // one per source, in the order of their first line
	full    []*chunk
	waiting int                    // bytes in full
	dropped map[source]*lines.Tail // since the last line that was taken
	passing map[source]*chunk      // those in full that have an open line alone
	lost    map[owner]uint64
	left    chan struct{} // closed, and made anew, when a chunk has left full
	seq     uint64
}

// owner identifies the worker incarnation that produced the output.
type owner struct {
	job   ident.JobID
	place ident.Place
}

// source is what all lines of a chunk have in common.
type source struct {
	job        ident.JobID
	place      ident.Place
	rank       int
	generation ident.Generation
	stream     string
}

type chunk struct {
	source
	lines.Chunk
	id   string
	sent bool // being sent: must not be changed
}

func newLogs(o Options) *logs {
	var pace *rate.Limiter
	if o.Config.LogRate > 0 {
		pace = rate.NewLimiter(rate.Limit(o.Config.LogRate), o.Config.LogBurst)
	}
	return &logs{
		pace: pace,
		opt:  o, wake: make(chan struct{}, 1), dropped: map[source]*lines.Tail{}, passing: map[source]*chunk{}, lost: map[owner]uint64{}, left: make(chan struct{}),
	}
}

func (l *logs) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := source{line.Job, line.Place, line.Rank, line.Generation, line.Stream}
	if l.waiting >= l.opt.Config.LogBuffer {
		if !line.Open { // it comes once more when it is finished
			l.missed(s, line.Text)
		}
		return
	}
	l.mark(s)
	c := l.chunk(s)
	c.Put(output.Line{Text: line.Text, Open: line.Open})
	if len(c.Data) >= chunkSize {
		l.sealLocked()
	}
}

func (l *logs) missed(s source, text string) {
	t := l.dropped[s]
	if t == nil {
		t = &lines.Tail{}
		l.dropped[s] = t
	}
	if n := t.Add(text); n > 0 {
		l.lost[owner{s.job, s.place}] += uint64(n)
	}
}

// mark adds a mark for the lines dropped here, if any, and the newest of them.
func (l *logs) mark(s source) {
	t := l.dropped[s]
	if t == nil {
		return
	}
	delete(l.dropped, s)
	c := l.chunk(s)
	if t.Lost > 0 {
		c.Gap(t.Lost)
	}
	for _, text := range t.Lines {
		c.Put(output.Line{Text: text})
	}
}

// ended marks the last gap of a worker that has ended, takes the newest lines after it however full
// the buffer is, and returns the number of its dropped lines.
func (l *logs) ended(job ident.JobID, place ident.Place) uint64 {
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
func (l *logs) await(job ident.JobID, place ident.Place, within time.Duration) {
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
		last := l.passing[c.source]
		if last == nil || last.sent || !c.Passing() {
			last = l.lastOf(c.source)
		}
		delete(l.passing, c.source) // what comes must not overtake this one
		if last != nil && len(last.Data)+len(c.Data) <= mergedSize {
			l.waiting -= len(last.Data)
			last.Join(c.Chunk)
			l.waiting += len(last.Data)
			c = last
		} else {
			c.id = l.newID()
			l.full = append(l.full, c)
			l.waiting += len(c.Data)
		}
		if c.Passing() {
			l.passing[c.source] = c
		}
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
	l.markAll()
	l.sealLocked()
}

func (l *logs) markAll() {
	for s := range l.dropped {
		l.mark(s)
	}
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
			if l.waiting < l.opt.Config.LogBuffer { // there is room for what was kept of dropped lines
				l.markAll()
			}
			l.sealLocked()
			l.mu.Unlock()
		case <-l.wake:
		}
		for c := l.first(); c != nil && ctx.Err() == nil; c = l.first() {
			if l.pace != nil && l.pace.WaitN(ctx, len(c.Data)) != nil {
				return nil // the agent ends
			}
			err := l.store(ctx, c)
			if errcode.Of(err) == errcode.Unavailable || errcode.Of(err) == errcode.Internal || errcode.Of(err) == errcode.Cancelled {
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
	l.waiting -= len(c.Data)
	if l.passing[c.source] == c {
		delete(l.passing, c.source)
	}
	if err == nil || c.Lines == 0 { // or it had only a mark or a state
		l.full = l.full[1:]
		close(l.left)
		l.left = make(chan struct{})
		return
	}
	l.opt.Logger.Warn("output dropped", "node", l.opt.Node, "job", c.job, "count", c.Lines, "reason", err)
	l.lost[owner{c.job, c.place}] += uint64(c.Lines)
	instead := &chunk{source: c.source, id: l.newID()}
	instead.Gap(c.Lines + c.Gaps)
	l.waiting += len(instead.Data)
	l.full[0] = instead
}

// drained waits until everything is stored. After half of the time only the newest of each stream
// is. What is not stored by then is lost with this process, which is logged.
func (l *logs) drained(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(end)/2, l.shorten).Stop()
	}
	for ctx.Err() == nil && l.waits() > 0 {
		wait.Sleep(ctx, 5*time.Millisecond)
	}
	if n := l.waits(); n > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		count := 0
		for _, c := range l.full {
			count += c.Lines
		}
		l.opt.Logger.Error("output could not be stored before the end", "node", l.opt.Node, "lines", count, "chunks", n)
	}
}

// shorten leaves the newest chunk of each source, after a mark for the lines before it.
func (l *logs) shorten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest, before := map[source]*chunk{}, map[source]int{}
	for _, c := range l.full {
		newest[c.source] = c
	}
	lost := 0
	l.full = slices.DeleteFunc(l.full, func(c *chunk) bool {
		if c.sent || newest[c.source] == c {
			return false
		}
		lost += c.Lines
		before[c.source] += c.Lines + c.Gaps
		l.waiting -= len(c.Data)
		return true
	})
	for s, n := range before {
		if n == 0 {
			continue // it was a state
		}
		var with lines.Chunk
		with.Gap(n)
		with.Join(newest[s].Chunk)
		l.waiting += len(with.Data) - len(newest[s].Data)
		newest[s].Chunk = with
	}
	if lost > 0 {
		l.opt.Logger.Warn("output dropped", "node", l.opt.Node, "count", lost, "reason", "it is not stored fast enough before the end")
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
	_, err := l.opt.Ports.Log.Publish(ctx, broker.Message{
		Subject: events.LogSubject(c.job, string(c.place.Node), slot), ID: c.id, Data: c.Data,
		Header: map[string][]string{
			output.HeaderNode: {string(c.place.Node)}, output.HeaderSlot: {slot},
			output.HeaderRank: {strconv.Itoa(c.rank)}, output.HeaderStream: {c.stream},
			output.HeaderGeneration: {strconv.FormatUint(uint64(c.generation), 10)},
		},
	})
	return err
}
