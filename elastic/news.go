package elastic

import "sync/atomic"

// What a step's and a commit's reduction carry as news; the greatest wins.
const (
	newsNone    int64 = iota
	newsLeaving       // a member's node will be taken away: commit now, and go on
	newsPlanned
	newsStop
)

// news is what the agent has announced to this worker, and not yet what all ranks know.
type news struct {
	leaving atomic.Bool
	change  atomic.Int64 // newsPlanned or newsStop, else newsNone
}

func (n *news) get() int64 {
	if c := n.change.Load(); c != newsNone || !n.leaving.Load() {
		return c
	}
	return newsLeaving
}

// announce raises a flag; the greatest stays.
func (n *news) announce(what int64) {
	if what == newsLeaving {
		n.leaving.Store(true)
		return
	}
	for {
		is := n.change.Load()
		if is >= what || n.change.CompareAndSwap(is, what) {
			return
		}
	}
}

// withdraw takes back the news of a planned change, if no commit has carried it yet.
func (n *news) withdraw() { n.change.CompareAndSwap(newsPlanned, newsNone) }
