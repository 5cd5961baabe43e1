package control

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regroup-io/regroup/collective/internal/frame"
)

// Wait is how a rank spent a period that has just ended.
type Wait struct {
	Rank int
	// Share of the period, 0 to 1, for which its operations slept until another rank sent
	// something.
	Share float64
}

// Straggler is the rank that the others wait for.
type Straggler struct {
	Rank int
	// Share of their time, 0 to 1, that the others lose with it: by how much the median rank waits
	// longer.
	Share float64
}

// Waits returns how long the known ranks wait, sorted by share. In large worlds only the ranks that
// wait least are known.
func (s *Session) Waits() []Wait {
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	all := make([]Wait, len(s.waits.entries))
	for i, n := range s.waits.entries {
		all[i] = Wait{Rank: int(n.rank), Share: float64(n.share) / million}
	}
	return all
}

// Slowest returns the rank that waits least, if half of the known ranks wait for a tenth of the
// time more.
func (s *Session) Slowest() (Straggler, bool) {
	if p := s.waits.slowest.Load(); p != nil {
		return *p, true
	}
	return Straggler{}, false
}

// Waited returns the part of its newest period, 0 to 1, for which this rank's operations slept
// until another rank sent something; nil before the first period has ended.
func (s *Session) Waited() *float64 { return s.waits.own.Load() }

// Stragglers returns the neighbours that had not begun this rank's newest operation at their last
// heartbeat.
func (s *Session) Stragglers() []int {
	mine := s.ops.newest().Seq
	var ranks []int
	for _, l := range s.links() {
		if !slices.Contains(ranks, l.peer) && l.seq.Load() < mine {
			ranks = append(ranks, l.peer)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// waitEntry is what is known of a rank: 12 bytes on the wire.
type waitEntry struct {
	rank, period uint32
	share        uint32 // in millionths
}

const (
	million        = 1_000_000
	waitEntryBytes = 12
	maxWaitEntries = frame.MaxControl / waitEntryBytes
)

// waitTable is what is known of the ranks' waits. It spreads with the heartbeats.
type waitTable struct {
	mu      sync.Mutex
	entries []waitEntry // by share
	period  uint32
	before  time.Duration // waited at the start of the period
	began   time.Time

	slowest atomic.Pointer[Straggler] // nil = there is none
	own     atomic.Pointer[float64]   // share of this rank in its newest period; nil = none has ended
}

func (w *waitTable) add(b []byte, world int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	le := binary.LittleEndian
	for ; len(b) >= waitEntryBytes; b = b[waitEntryBytes:] {
		n := waitEntry{rank: le.Uint32(b), period: le.Uint32(b[4:]), share: min(le.Uint32(b[8:]), million)}
		if int(n.rank) < world {
			w.put(n)
		}
	}
	w.trim()
}

func (w *waitTable) put(n waitEntry) {
	i := slices.IndexFunc(w.entries, func(o waitEntry) bool { return o.rank == n.rank })
	switch {
	case i < 0:
		w.entries = append(w.entries, n)
	case w.entries[i].period < n.period:
		w.entries[i] = n
	}
}

func (w *waitTable) trim() {
	slices.SortFunc(w.entries, func(a, b waitEntry) int {
		return cmp.Or(cmp.Compare(a.share, b.share), cmp.Compare(a.rank, b.rank))
	})
	w.entries = w.entries[:min(len(w.entries), maxWaitEntries)]
	w.slowest.Store(nil)
	if n := len(w.entries); n >= 2 {
		if more := float64(w.entries[n/2].share-w.entries[0].share) / million; more >= 0.1 {
			w.slowest.Store(&Straggler{Rank: int(w.entries[0].rank), Share: more})
		}
	}
}

// endPeriod ends a period of this rank. waited is how long it has waited since its start.
func (w *waitTable) endPeriod(rank int, waited time.Duration, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() {
		w.period++
		share := min(max(float64(waited-w.before)/float64(max(now.Sub(w.began), 1)), 0), 1)
		w.own.Store(&share)
		w.put(waitEntry{rank: uint32(rank), period: w.period, share: uint32(million * share)})
		w.trim()
	}
	w.before, w.began = waited, now
}

func (w *waitTable) encode() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	// cannot fail: entries have a fixed size
	b, _ := binary.Append(nil, binary.LittleEndian, w.entries)
	return b
}
