// Package job answers one question: what became of the job's workers, and what follows from it?
//
// It is Horovod's worker registry (READY, SUCCESS, FAILURE of every member of a generation) and its reset limit, without
// the barrier: nobody waits here. A machine decides for one job at a time.
//
//	          submit            sealed               done
//	(nothing) ------> waiting ---------> running ----------> finishing
//	                     |                  |   \               |    \
//	                     | stop             |    \ budget used  |     \ nobody succeeded
//	                     v       stop       v     \             v      \
//	                  stopped <--------- stopping  --> failed <-----    --> succeeded
//
// Workers: starting -> running -> ready -> done -> success; or failure, lost (with its node), stopped (it was asked to).
// A worker is one life in one place: the incarnation names it, a newer life replaces it, and facts of an older one
// change nothing. Each life is charged to the failure budget at most once, a generation too, a planned change never.
// failures.sameStep of them in a row after one committed step end the job; see charge.go for which step that is.
//
// Facts read: placement.set, placement.waiting, round.opened, round.missed, round.sealed, worker.started, worker.ready, worker.done,
// worker.exited, node.joined, node.lost, node.left. Commands read: job.submit, job.scale, job.stop, job.remove.
// Facts written: the families job and incident.
//
// No order between families is assumed: a generation can be ready before it is known to be sealed, and a worker can have
// died before it is known to have been started. The outcome of a job is judged again after every input, from the whole
// state, so a fact that comes twice, late or never cannot end a job wrongly.
//
// Not here: who is in a generation (rendezvous), where workers run (scheduler), whether a node lives (discovery).
package job
