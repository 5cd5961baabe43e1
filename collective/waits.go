package collective

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Wait is how a rank spent a period that has just ended.
type Wait struct {
	Rank int
	// Share of the period, 0 to 1, for which its operations slept until another rank sent
	// something.
	Share float64
}

// Waits tells who waits for others, and how much: the rank that waits least is the one that
// the others wait for. The news travel with the heartbeats, so they are as old as a few of
// them, and cost no message of their own. In large worlds only the ranks that wait least are
// known. They are sorted by share.
func (c *Communicator) Waits() []Wait {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	all := make([]Wait, len(c.waits.news))
	for i, n := range c.waits.news {
		all[i] = Wait{Rank: int(n.rank), Share: float64(n.share) / million}
	}
	return all
}

// Straggler is the rank that the others wait for.
type Straggler struct {
	Rank int
	// Share of their time that the others lose with it: that by which the median rank waits
	// longer, 0 to 1.
	Share float64
}

// Slowest names the rank that waits least, if half of the known ranks wait for a tenth of
// the time more. It costs nothing.
func (c *Communicator) Slowest() (Straggler, bool) {
	if s := c.waits.slowest.Load(); s != nil {
		return *s, true
	}
	return Straggler{}, false
}

// news is what is known of a rank: 12 bytes on the wire.
type news struct {
	rank, period uint32
	share        uint32 // in millionths
}

const (
	million   = 1_000_000
	newsBytes = 12
	maxNews   = maxControl / newsBytes
)

type waits struct {
	mu     sync.Mutex
	news   []news // by share
	period uint32
	before time.Duration // waited at the begin of the period
	began  time.Time

	slowest atomic.Pointer[Straggler] // nil = nobody is
}

// add merges what a neighbour knows.
func (w *waits) add(b []byte, world int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	le := binary.LittleEndian
	for ; len(b) >= newsBytes; b = b[newsBytes:] {
		n := news{rank: le.Uint32(b), period: le.Uint32(b[4:]), share: min(le.Uint32(b[8:]), million)}
		if int(n.rank) < world {
			w.put(n)
		}
	}
	w.trim()
}

func (w *waits) put(n news) {
	i := slices.IndexFunc(w.news, func(o news) bool { return o.rank == n.rank })
	switch {
	case i < 0:
		w.news = append(w.news, n)
	case w.news[i].period < n.period:
		w.news[i] = n
	}
}

func (w *waits) trim() {
	slices.SortFunc(w.news, func(a, b news) int { return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.rank, b.rank)) })
	w.news = w.news[:min(len(w.news), maxNews)]
	w.slowest.Store(nil)
	if n := len(w.news); n >= 2 {
		if more := float64(w.news[n/2].share-w.news[0].share) / million; more >= 0.1 {
			w.slowest.Store(&Straggler{Rank: int(w.news[0].rank), Share: more})
		}
	}
}

// turn ends a period of this rank, in which it has waited for so long in all.
func (w *waits) turn(rank int, waited time.Duration, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() {
		w.period++
		share := float64(waited-w.before) / float64(max(now.Sub(w.began), 1))
		w.put(news{rank: uint32(rank), period: w.period, share: uint32(million * min(max(share, 0), 1))})
		w.trim()
	}
	w.before, w.began = waited, now
}

func (w *waits) encode() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := make([]byte, 0, len(w.news)*newsBytes)
	for _, n := range w.news {
		b = binary.LittleEndian.AppendUint32(b, n.rank)
		b = binary.LittleEndian.AppendUint32(b, n.period)
		b = binary.LittleEndian.AppendUint32(b, n.share)
	}
	return b
}

// waited is for how long operations of this rank have slept in all.
func (c *Communicator) waited() (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.paths {
		sum += time.Duration(p.waited.Load())
	}
	if c.local != nil {
		for q := range c.local.Size() {
			sum += c.local.WaitTime(q)
		}
	}
	return sum
}
