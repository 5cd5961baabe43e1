// Package scheduler decides which slots a job gets.
//
//	job.submitted, scaled, succeeded, failed, stopped ─► ┌──────┐
//	node.joined, suspected, recovered, lost, left,    ─► │ plan │ ─► placement.set, waiting, released
//	     draining, quarantined, released, changed        └──────┘ ─► bucket placements, one document: the pool
//	incident.opened, closed (only for their trace)      ────▲
//
// States of a job in the pool: waiting, placed, below min, released (drawn in package plan, with
// the rules).
//
// It reads the facts of the job, node and incident families, and, at the start and every 10 s, the
// buckets jobs and nodes, to replace missed facts. It is the only writer of the facts of the
// placement family.
package scheduler
