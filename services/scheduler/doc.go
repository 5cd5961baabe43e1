// Package scheduler is the judge of one question: which slots does this job get?
//
//	job.submitted, scaled, succeeded, failed, stopped ─► ┌──────┐
//	node.joined, suspected, recovered, lost, left,    ─► │ plan │ ─► placement.set, waiting, released
//	     draining, quarantined, released, changed        └──────┘ ─► bucket placements, one document: the pool
//	incident.opened, closed (only to draw in its trace) ────▲
//
// States of a job in the pool: waiting, placed, below min, released (drawn in package plan, with
// the rules).
//
// It reads the facts of the job, node and incident families, and at the start and every 10 s the
// buckets jobs and nodes, so that a fact that never came is made up for. It writes the facts of the
// placement family, and no other service does.
package scheduler
