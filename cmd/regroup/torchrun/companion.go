package torchrun

import (
	"encoding/json"
	"os"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// companion tells a foreign agent, in whose place this process takes part in a job, what becomes of
// the node: one line of JSON for each change. The Python package starts such companions.
type companion struct {
	file   *os.File
	newest chan companionStatus // of capacity 1: one that was not written yet is replaced
}

// companionStatus is one line.
type companionStatus struct {
	Job        ident.JobID       `json:"job"`
	Membership events.Membership `json:"membership"`
	Waiting    int               `json:"waiting"` // nodes of the wait list
	Closed     bool              `json:"closed"`
}

// newCompanion writes to an inherited file descriptor, until the process ends.
func newCompanion(fd int) *companion {
	c := &companion{file: os.NewFile(uintptr(fd), "agent"), newest: make(chan companionStatus, 1)}
	go func() {
		for s := range c.newest {
			b, err := json.Marshal(s)
			if err != nil {
				continue
			}
			if _, err := c.file.Write(append(b, '\n')); err != nil {
				return // the agent has ended, and the kernel tells this process so
			}
		}
	}()
	return c
}

// changed reports a change. It does not block.
func (c *companion) changed(n events.NodeMembership) {
	s := companionStatus{Job: n.Job, Membership: n.Membership, Waiting: n.Waiting, Closed: n.Closed}
	for {
		select {
		case c.newest <- s:
			return
		default:
		}
		select {
		case <-c.newest:
		default:
		}
	}
}
