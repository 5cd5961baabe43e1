// Package discovery is the judge of one question: is this node alive, how many slots has it, and
// may work go to it?
//
//	agents ── join, leave ────────────────► ┌───────────┐
//	agents ── heartbeats (every replica) ─► │ liveness  │ ──► node.joined, suspected, recovered, lost, left, draining
//	clients ─ node.drain ─────────────────► │           │
//	registry ── job.charged ──────────────► │           │ ──► node.quarantined, released
//	clients ─ node.quarantine, release ───► │           │
//	host list: a flag, file or script ────► │           │ ──► node.changed
//	                                        └───────────┘ ──► bucket nodes, one document per node
//
// States of a node: ready, suspected, lost, left (drawn in package liveness); draining is told
// beside them.
//
// Of facts it reads job.charged alone. It writes the facts of the node family, and no other service
// does.
//
// Every replica hears all heartbeats and ages them in its own memory; a replica that cannot hear
// accuses nobody. Before a node is lost, its agent is pinged once directly. A node that was lost
// comes back with the hello that its agent repeats every 10 s.
package discovery
