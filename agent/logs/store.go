// Package logs stores the output of workers in the log, in chunks.
package logs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

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

// Options of a Store.
type Options struct {
	Node        ident.NodeID
	Incarnation ident.Incarnation // of the agent
	Log         broker.Log
	Logger      *slog.Logger
	CallTimeout time.Duration // of one call of the log
	Config
}

// Config says how much is stored when. Zero fields mean the defaults.
type Config struct {
	Every  time.Duration // maximum time for which output waits for a chunk to fill; 0 = 200 ms
	Buffer int           // bytes that wait for a slow log before lines are dropped; 0 = 16 MiB
	Rate   int           // bytes that are stored in a second; 0 = what the log takes
	Burst  int           // with a Rate: bytes that may be stored at once; 0 = 8 MiB
}

// Line is one line of a worker's output.
type Line struct {
	Job        ident.JobID
	Place      ident.Place
	Rank       ident.Rank       // NoRank = none yet
	LocalRank  int              // 0 without a rank
	Generation ident.Generation // 0 = none yet
	Stream     string           // stdout or stderr
	Text       string
	Open       bool   // the next line of the same worker and stream replaces it
	Trace      string // traceparent of the span of its process
}

// Prefix returns what a terminal shows before the line: [node r2 g3].
func (l Line) Prefix() string {
	if l.Rank < 0 {
		return fmt.Sprintf("[%s s%d]", l.Place.Node, l.Place.Slot)
	}
	return fmt.Sprintf("[%s r%d %s]", l.Place.Node, l.Rank, l.Generation)
}

// Store stores workers' output in chunks. If the log is so slow that the buffer is full, lines are
// dropped: training does not wait for its output. Only the newest 64 KiB of the dropped lines of
// each source are kept. When there is room, or at the latest when the worker has ended, the store
// takes a mark with the number of lines that are missing, and then the kept ones. The fact of the
// exit has the total.
type Store struct {
	opt     Options
	pace    *rate.Limiter // of what is stored; nil = none
	wake    chan struct{}
	mu      sync.Mutex
	open    []*chunk // one per source, in the order of their first line
	full    []*chunk
	waiting int               // bytes in full
	dropped map[source]*tail  // since the last line that was taken
	passing map[source]*chunk // those in full that have nothing but an open line, which the next one replaces
	lost    map[owner]uint64
	left    chan struct{} // closed, and made anew, when a chunk has left full
	seq     uint64
}

// owner is whose lines are counted: those of all incarnations of a worker, until one has ended.
type owner struct {
	job   ident.JobID
	place ident.Place
}

// source is what all lines of a chunk have in common.
type source struct {
	job        ident.JobID
	place      ident.Place
	rank       ident.Rank
	generation ident.Generation
	stream     string
}

type chunk struct {
	source
	part
	id   string
	sent bool // being sent: must not be changed
}

// New returns a store, which begins to store with Run.
func New(o Options) *Store {
	o.Every, o.Buffer = cmp.Or(o.Every, 200*time.Millisecond), cmp.Or(o.Buffer, 16<<20)
	var pace *rate.Limiter
	if o.Rate > 0 {
		pace = rate.NewLimiter(rate.Limit(o.Rate), max(cmp.Or(o.Burst, 8<<20), 2*mergedSize)) // a chunk must fit
	}
	return &Store{
		pace: pace, opt: o, wake: make(chan struct{}, 1), dropped: map[source]*tail{}, passing: map[source]*chunk{}, lost: map[owner]uint64{}, left: make(chan struct{}),
	}
}

// Add takes a line into the buffer, or drops it. It does not block.
func (l *Store) Add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := source{line.Job, line.Place, line.Rank, line.Generation, line.Stream}
	if l.waiting >= l.opt.Buffer {
		if !line.Open { // it comes once more when it is finished
			l.missed(s, line.Text)
		}
		return
	}
	l.mark(s)
	c := l.chunk(s)
	c.put(output.Line{Text: line.Text, Open: line.Open})
	if len(c.data) >= chunkSize {
		l.sealLocked()
	}
}

func (l *Store) missed(s source, text string) {
	t := l.dropped[s]
	if t == nil {
		t = &tail{}
		l.dropped[s] = t
	}
	if n := t.add(text); n > 0 {
		l.lost[owner{s.job, s.place}] += uint64(n)
	}
}

// mark adds a mark for the lines of a source that are missing, if any, and then the kept ones.
func (l *Store) mark(s source) {
	t := l.dropped[s]
	if t == nil {
		return
	}
	delete(l.dropped, s)
	c := l.chunk(s)
	if t.lost > 0 {
		c.gap(t.lost)
	}
	for _, text := range t.lines {
		c.put(output.Line{Text: text})
	}
}

// Ended marks the last gap of a worker that has ended, and takes the lines that were kept after it,
// even if the buffer is full. It returns how many lines of the worker are missing.
func (l *Store) Ended(job ident.JobID, place ident.Place) uint64 {
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

// Await waits until the output of a worker that has ended is stored, for a time at most.
func (l *Store) Await(job ident.JobID, place ident.Place, within time.Duration) {
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

func (l *Store) chunk(s source) *chunk {
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
func (l *Store) sealLocked() {
	for _, c := range l.open {
		last := l.passing[c.source]
		if last == nil || last.sent || !c.passing() {
			last = l.lastOf(c.source)
		}
		delete(l.passing, c.source) // no later line may join a chunk before this one
		if last != nil && len(last.data)+len(c.data) <= mergedSize {
			l.waiting -= len(last.data)
			last.join(c.part)
			l.waiting += len(last.data)
			c = last
		} else {
			c.id = l.newID()
			l.full = append(l.full, c)
			l.waiting += len(c.data)
		}
		if c.passing() {
			l.passing[c.source] = c
		}
	}
	if len(l.open) > 0 {
		l.open = nil
		wait.Notify(l.wake)
	}
}

func (l *Store) newID() string {
	l.seq++
	return fmt.Sprintf("%s-log-%d", l.opt.Incarnation, l.seq)
}

// lookBack is how many waiting chunks lastOf searches, which limits how far a line can overtake
// those of other sources.
const lookBack = 16

// lastOf returns the newest waiting chunk of a source that is not being sent, or nil if there is
// none among the newest.
func (l *Store) lastOf(s source) *chunk {
	for i := len(l.full) - 1; i >= max(0, len(l.full)-lookBack); i-- {
		if c := l.full[i]; c.source == s && !c.sent {
			return c
		}
	}
	return nil
}

// Seal closes all chunks, before the store ends.
func (l *Store) Seal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.markAll()
	l.sealLocked()
}

func (l *Store) markAll() {
	for s := range l.dropped {
		l.mark(s)
	}
}

// Run stores until ctx ends.
func (l *Store) Run(ctx context.Context) error {
	t := time.NewTicker(l.opt.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			l.mu.Lock()
			if l.waiting < l.opt.Buffer { // there is room for what was kept of dropped lines
				l.markAll()
			}
			l.sealLocked()
			l.mu.Unlock()
		case <-l.wake:
		}
		for c := l.first(); c != nil && ctx.Err() == nil; c = l.first() {
			if l.pace != nil && l.pace.WaitN(ctx, len(c.data)) != nil {
				return nil // the agent ends
			}
			err := l.store(ctx, c)
			if errcode.Of(err) == errcode.Unavailable || errcode.Of(err) == errcode.Internal || errcode.Of(err) == errcode.Cancelled {
				wait.Sleep(ctx, l.opt.Every)
				continue // meanwhile new lines fill the buffer and are dropped there
			}
			l.drop(err)
		}
	}
}

func (l *Store) first() *chunk {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.full) == 0 {
		return nil
	}
	l.full[0].sent = true
	return l.full[0]
}

// drop removes the first chunk when it is stored. With an error it never will be: a mark takes the
// place of its lines.
func (l *Store) drop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.full[0]
	l.waiting -= len(c.data)
	if l.passing[c.source] == c {
		delete(l.passing, c.source)
	}
	if err == nil || c.lines == 0 { // or it had no finished line
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

// Drained waits until everything is stored. After half of the time it leaves the newest chunk of
// each source alone. When ctx ends it logs what could not be stored.
func (l *Store) Drained(ctx context.Context) {
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
			count += c.lines
		}
		l.opt.Logger.Error("output could not be stored before the end", "node", l.opt.Node, "lines", count, "chunks", n)
	}
}

// shorten leaves the newest chunk of each source, after a mark for the lines before it.
func (l *Store) shorten() {
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
		lost += c.lines
		before[c.source] += c.lines + c.gaps
		l.waiting -= len(c.data)
		return true
	})
	for s, n := range before {
		if n == 0 {
			continue // it had nothing but an open line
		}
		var with part
		with.gap(n)
		with.join(newest[s].part)
		l.waiting += len(with.data) - len(newest[s].data)
		newest[s].part = with
	}
	if lost > 0 {
		l.opt.Logger.Warn("output dropped", "node", l.opt.Node, "count", lost, "reason", "it is not stored fast enough before the end")
	}
}

func (l *Store) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.full)
}

func (l *Store) store(ctx context.Context, c *chunk) error {
	slot := strconv.Itoa(int(c.place.Slot))
	ctx, cancel := context.WithTimeout(ctx, l.opt.CallTimeout)
	defer cancel()
	_, err := l.opt.Log.Publish(ctx, broker.Message{
		Subject: events.LogSubject(c.job, string(c.place.Node), slot), ID: c.id, Data: c.data,
		Header: map[string][]string{
			output.HeaderNode: {string(c.place.Node)}, output.HeaderSlot: {slot},
			output.HeaderRank: {strconv.Itoa(int(c.rank))}, output.HeaderStream: {c.stream},
			output.HeaderGeneration: {strconv.FormatUint(uint64(c.generation), 10)},
		},
	})
	return err
}
