// Package proc runs workers as real processes of this machine (Linux).
//
// Each worker leads a process group of its own. Signals and kills go to the whole group, and when
// the leader has ended what is left of the group is killed, so that a worker that forks leaves
// nobody behind. The kernel kills a worker when its agent dies (PR_SET_PDEATHSIG). What escapes
// that is found, at the worker's end or after the agent's restart, by the files that this package
// keeps, by the worker's incarnation in its environment, and by a mark that no child of it loses
// (see spawn). Deciding when to start or stop is not done here.
package proc
