package agent

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
)

// chunkSize is where a chunk of output is full. Larger ones cost latency, smaller ones a message each.
const chunkSize = 16 << 10

// logs stores workers' output in chunks. When the store is slow, lines are dropped and counted: training does not wait
// for its log.
type logs struct {
	opt     Options
	wake    chan struct{}
	mu      sync.Mutex
	open    []*chunk // one per source, in the order of their first line
	full    []*chunk
	waiting int // bytes in full
	dropped map[source]int
	seq     uint64
}

// source is what lines must share to be in one chunk.
type source struct {
	job        events.JobID
	place      events.Place
	rank       int
	generation events.Generation
	stream     string
}

type chunk struct {
	source
	data []byte
	id   string
}

func newLogs(o Options) *logs {
	return &logs{opt: o, wake: make(chan struct{}, 1), dropped: map[source]int{}}
}

func (l *logs) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := source{line.Job, line.Place, line.Rank, line.Generation, line.Stream}
	if l.waiting >= l.opt.Config.LogBuffer {
		l.dropped[s]++
		return
	}
	c := l.chunk(s)
	if n := l.dropped[s]; n > 0 {
		delete(l.dropped, s)
		c.data = fmt.Appendf(c.data, "regroup: %d lines were dropped here, the log store was too slow\n", n)
	}
	c.data = append(append(c.data, line.Text...), '\n')
	if len(c.data) >= chunkSize {
		l.sealLocked()
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

// sealLocked lets all open chunks go, so that lines of different sources keep their order more or less.
func (l *logs) sealLocked() {
	for _, c := range l.open {
		l.seq++
		c.id = fmt.Sprintf("%s-log-%d", l.opt.Incarnation, l.seq)
		l.waiting += len(c.data)
		l.full = append(l.full, c)
	}
	if len(l.open) > 0 {
		l.open = nil
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (l *logs) seal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, n := range l.dropped {
		c := l.chunk(s)
		c.data = fmt.Appendf(c.data, "regroup: %d lines were dropped here, the log store was too slow\n", n)
	}
	clear(l.dropped)
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
				pause(ctx, l.opt.Config.LogEvery)
				continue // what comes meanwhile fills the buffer and is dropped there
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
	return l.full[0]
}

func (l *logs) drop(err error) {
	if err != nil {
		l.opt.Logger.Warn("output dropped", "node", l.opt.Node, "reason", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting -= len(l.full[0].data)
	l.full = l.full[1:]
}

// drained waits until everything is stored.
func (l *logs) drained(ctx context.Context) {
	for ctx.Err() == nil && l.first() != nil {
		pause(ctx, 5*time.Millisecond)
	}
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
