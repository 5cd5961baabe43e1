// Package proc runs workers as processes of this machine (Linux).
//
// Each worker leads a process group. Signals and kills go to the whole group, and when the leader
// has ended the rest of the group is killed, so that a worker that forks leaves no process behind.
// The kernel kills a worker when its agent dies (PR_SET_PDEATHSIG). Processes that escape all this
// are found, when the worker ends or the agent restarts, by the files that this package keeps, by
// the worker's incarnation in their environment, and by a mark that all children inherit (see
// spawn). Package worker decides when to start or stop.
package proc
