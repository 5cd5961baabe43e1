// Package discovery decides whether a node is alive, how many slots it has, and whether it may get
// work.
//
//	agents ── join, leave ────────────────► ┌───────────┐
//	agents ── heartbeats (every replica) ─► │ liveness  │ ──► node.joined, suspected, recovered, lost, left, draining
//	clients ─ node.drain ─────────────────► │           │
//	registry ── job.charged ──────────────► │           │ ──► node.quarantined, released
//	clients ─ node.quarantine, release ───► │           │
//	host list: a flag, file or script ────► │           │ ──► node.changed
//	                                        └───────────┘ ──► bucket nodes, one document per node
//
// States of a node: ready, suspected, lost, left (drawn in package liveness); draining is a
// separate attribute.
//
// The only facts that it reads are job.charged. It is the only writer of the facts of the node
// family.
//
// Every replica receives all heartbeats and tracks them in memory; a disconnected replica suspects
// no node. Before a node is lost, its agent is pinged once directly. A lost node returns with the
// hello that its agent repeats every 10 s.
package discovery
