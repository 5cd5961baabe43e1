// Package worker answers one question for one node: given the newest launch of every job, what the processes do and
// what the workers say, what must the agent do next?
//
// It is a pure machine: Step takes one input and returns the actions in the order in which they must be done. It is
// level-triggered: every input ends in a comparison of what each launch wants with what runs, so repeats, gaps and late
// inputs are harmless. One life of a worker goes
//
//	planned --StartProcess--> starting --> running --> gone
//
// where planned exists in restart recovery only: the agent joins in the place of a process that it has not started yet.
// Deciding who is in a generation, whether a dead worker comes again and when a job is over is not done here.
package worker
