// Package agent is the shell around the machine of package worker on one node: it turns launch
// events into processes, workers' calls into requests, and what happens into signals, facts and log
// chunks.
//
// One goroutine owns the machine; everything else hands it inputs through a queue that never blocks
// and carries out its actions. The agent decides nothing: what follows from an input is in package
// worker, who is in a generation is the rendezvous' to say, and whether this node is alive is
// discovery's.
package agent
