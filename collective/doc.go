// Package collective lets the ranks of one generation exchange tensors: allreduce,
// reduce-scatter, all-gather, broadcast, reduce, all-to-all, barrier, and direct messages
// for the transfer of state. It knows nothing of the control plane.
//
// A process has one Endpoint for its whole life, and one Communicator for each
// generation that it takes part in:
//
//	New ──────── connected ─────── Close        every later call: ErrClosed
//	 │               │
//	 └──── failure ──┴──► poisoned ── Close     every pending and later call: the failure
//
// A communicator fails once, as a whole, on every rank, and for good. Who sees a broken
// connection says who is gone, and everybody passes it on, so that all ranks return a
// *PeerLostError with the same rank. What an operation did before it failed is void; its
// buffer holds anything. Outcome is agreed at the next commit, by the caller, and training
// goes on with a new generation.
//
// # Connections
//
// Control frames (heartbeats, goodbye, abort) have connections of their own, on which
// nothing large is ever in the way: every rank dials the ranks at distances of 1, 2, 4 and
// so on around the ring. Data flows
//
//	among ranks of one machine     through memory that they share, see package shm
//	otherwise                      over wires, which are dialled when first needed
//
// A plan (package schedule) says who sends what to whom over the wires; Rule chooses it by
// the operation, the world and the size. Small operations are carried out by the calling
// thread alone, with plain system calls; large ones by two.
//
// A heartbeat says that the process runs, not that its program makes progress: a
// rank that computes for an hour is waited for. To notice that it hangs is the
// business of whoever watches its steps. It also says in which operation the rank is, so
// that programs that diverged are told so.
//
// # What is promised about results
//
// All ranks get the same bits, whatever the timing: each element is either reduced by one
// rank and then copied, or reduced by all in the same order. Another world size, another
// order of the ranks or another algorithm may round differently. (If several contributions
// are NaN, which of their payloads survives may differ between machines of different kind.)
//
// The wire carries numbers in the byte order of the machine; the handshake refuses
// a peer of the other order. It proves knowledge of the job's token in both
// directions (HMAC-SHA256), but does not protect what follows.
package collective
