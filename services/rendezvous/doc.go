// Package rendezvous answers: who is in this generation of a job, with which rank?
//
// One round per job, see package round for its states and rules. Any number of replicas may run;
// compare-and-set on the job's document lets one of them win.
//
// It reads facts of four families: of placement, placement.set; of worker, worker.exited and
// worker.ready; of node, node.joined, suspected, recovered, draining, lost and left; of job,
// job.respawned, blamed, stalled, finishing, stopping, succeeded, failed, stopped and removed, and
// job.submitted of jobs whose nodes come by themselves.
//
// It answers the requests join, joins and peers, and for such jobs enter, exit and close. It hears
// notices of failures, and heartbeats, to tell a node again what it has missed. It sends the
// signals abandon and gathering.
//
// It writes the facts round.opened, round.sealed, round.missed, round.gathered and round.closed,
// and it alone writes launches.
package rendezvous
