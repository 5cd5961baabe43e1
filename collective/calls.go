package collective

import "sync"

// calls are the newest operations of this rank. Heartbeats carry the last of them, so
// that ranks whose operations wait for different peers find out that they are in
// different ones, though neither ever gets a message from the other.
type calls struct {
	mu     sync.Mutex
	recent [16]call // by seq
	last   uint64
}

func (c *calls) begin(k call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent[k.seq%uint64(len(c.recent))], c.last = k, k.seq
}

func (c *calls) newest() call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent[c.last%uint64(len(c.recent))]
}

// differs returns this rank's operation of the same number as k, if it is another one.
func (c *calls) differs(k call) (mine call, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine = c.recent[k.seq%uint64(len(c.recent))]
	return mine, mine.seq == k.seq && mine != k
}

// diverged fails the communicator: another rank is in another operation.
func (c *Communicator) diverged(peer int, mine, theirs call) {
	c.fail(&DivergedError{
		Generation: c.opt.Generation, Rank: c.opt.Rank, Peer: peer, Mine: mine.String(), Theirs: theirs.String(),
	})
}
