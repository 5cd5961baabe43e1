// Package agent is the shell around the machine of package worker on one node: it turns launch
// events into processes, workers' calls into requests, and their results into signals, facts and
// chunks of output.
//
// One goroutine owns the machine; all others pass it inputs through a queue that never blocks, and
// perform its actions. The agent itself decides nothing: package worker decides what follows from
// an input, the rendezvous who is in a generation, and discovery whether this node is alive.
package agent
