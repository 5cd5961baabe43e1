// Package rendezvous decides which workers form a generation of a job, and with which ranks.
//
// There is one round per job; package round has its states and rules. Any number of replicas may
// run: compare-and-set on the job's document lets one of them win.
//
// The service reads facts of four families: of placement, placement.set; of worker, worker.exited
// and worker.ready; of node, node.joined, suspected, recovered, draining, lost and left; of job,
// job.respawned, blamed, stalled, finishing, stopping, succeeded, failed, stopped and removed, and
// job.submitted for jobs with self-registered nodes.
//
// It answers the requests join, joins and peers, and for such jobs enter, exit and close. It
// receives notices of failures, and heartbeats, which show that a node has missed a launch. It
// sends the signals abandon and gathering.
//
// It writes the facts round.opened, round.sealed, round.missed, round.gathered and round.closed,
// and is the only writer of launches.
package rendezvous
