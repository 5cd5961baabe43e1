// Package rendezvous answers: who is in this generation of a job, with which rank?
//
// One round per job, see package round for its states and rules. Any number of replicas may run; compare-and-set on the
// job's document lets one of them win.
//
// Facts read: placement.set; worker.exited, worker.ready; node.joined, node.suspected, node.recovered, node.draining, node.lost,
// node.left; job.respawned, job.blamed, job.finishing, job.stopping, job.succeeded, job.failed, job.stopped; job.submitted of
// jobs whose nodes come by themselves.
// Requests answered: join, joins, peers; enter, exit, close of such jobs. Signals heard: notices of failures, heartbeats (to tell a
// node again what it has missed). Signals sent: abandon, gathering.
// Facts written: round.opened, round.sealed, round.gathered, round.closed. It is the only writer of launches.
package rendezvous
