// Package plan decides which slots a job gets. There is one entity, the pool, and one question per Step: with these nodes
// and these jobs, who has which places now?
//
//	          room for min                    a node goes, or scaled down
//	waiting ───────────────► placed ◄────────────────────────► below min
//	   ▲                        │     slots appear (first served)    │
//	submitted                   └──────────► released ◄──────────────┘
//	                                 the job ended
//
// The rules, in the order in which slots are given out:
//
//  1. A place is kept as long as its node and slot are there; nothing is ever moved. Nodes that are lost, have left, drain,
//     are not on the host list or have fewer slots, and benched slots, take their places with them, and a job over its max
//     gives its highest places back.
//  2. Placed jobs that are below their min take free slots, oldest job first.
//  3. Waiting jobs get their min, all of it or nothing (a gang), oldest first. All slots are alike, so the first that does
//     not fit holds back every later one, and nobody starves. Only a job that needs more slots than all nodes together
//     have (those that drain, and what is in quarantine, not counted) holds nobody back.
//  4. What is left goes to placed jobs up to their max, oldest first, unless a waiting job holds it back (rule 3).
//
// Slots are taken in order of node name and slot number. Nobody is preempted.
//
// Inputs may be repeated, late, or in another order than told. Node facts are ordered by their number, each being the
// whole picture of the node. Jobs are known by three facts that may come in any order; ended ones are remembered for a
// while, so that job.submitted after job.stopped does not leak a slot.
package plan
