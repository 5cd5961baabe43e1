package collective

import "slices"

// Behind are the neighbours of this rank that had not begun its newest operation when they
// last said in which one they are: who waits, waits for one of them, or for one that a
// rank in between waits for. The news are as old as a heartbeat.
func (c *Communicator) Behind() []int {
	mine := c.calls.newest().seq
	var ranks []int
	for _, l := range c.links() {
		if !slices.Contains(ranks, l.peer) && l.seq.Load() < mine {
			ranks = append(ranks, l.peer)
		}
	}
	slices.Sort(ranks)
	return ranks
}
