// Package round decides who is in a generation of a job, with which rank. It is the pure half of the rendezvous
// service: one State per job, changed by Step.
//
//	          placement.set              all expected joined, or last call over
//	(none) ───────────────────► open ───────────────────────────────► sealed
//	                           ▲  │ min joined, some silent            │
//	                           │  └──────────► settling ──────────────►│
//	                           │                                       │
//	                           └── a member died, left or was asked ───┘      job ended: closed, for good
//
// A place of the job is a seat. What can be said of a seat:
//
//	coming    its worker is starting (first life or respawn); warms up aside when a generation is running
//	joined    its worker has asked to be in the next generation and waits
//	member    its worker is in the sealed generation
//	dead      its worker has ended and the registry has not said what follows
//	blamed    the registry's verdict: the seat stays empty
//	lost      its node is gone
//	finished  its worker has ended well
//
// The rules are those of design.md sections 7 and 8; the ranks are Horovod's.
package round
