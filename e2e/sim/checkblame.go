package sim

import "github.com/regroup-io/regroup/events"

// blame is the checker's account of the failures that the ends of agents were counted for.
type blame struct {
	processes map[events.Incarnation]agentProcess
	returns   map[events.Incarnation]int // how often an agent was heard again after it was lost
	first     map[agentEnd]events.JobFailureCounted
	counted   map[agentEnd]int
}

// agentProcess is a worker's process and the agent that has started it.
type agentProcess struct {
	*process
	agent events.Incarnation
}

// agentEnd is what one job has lost with one incarnation of an agent.
type agentEnd struct {
	job   events.JobID
	agent events.Incarnation
}

func newBlame() blame {
	return blame{
		processes: map[events.Incarnation]agentProcess{}, returns: map[events.Incarnation]int{},
		first: map[agentEnd]events.JobFailureCounted{}, counted: map[agentEnd]int{},
	}
}

func (b *blame) starts(p *process) { b.processes[p.start.Worker] = agentProcess{p, p.node.agent} }

// blames checks that the end of an agent is counted once for a job, however many workers ended with
// it, and whichever fact reports it first: that of discovery, its successor, or the silence of its
// workers. An agent that was lost, was heard again and was lost again has ended twice.
func (c *checker) blames(b events.JobFailureCounted) {
	p, known := c.blame.processes[b.Worker]
	if !known || (b.Kind != events.FailureLost && !p.endedWithAgent) {
		return
	}
	end := agentEnd{b.Job, p.agent}
	c.blame.counted[end]++
	if n := c.blame.counted[end]; n > 1+c.blame.returns[p.agent] {
		old := c.blame.first[end]
		c.fail(17, "the end of agent %s is counted for %s at %s (%s) and for %s at %s (%s)", p.agent, old.Worker, old.Place, old.Kind, b.Worker, b.Place, b.Kind)
	}
	c.blame.first[end] = b
}
