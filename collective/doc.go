// Package collective lets the ranks of one generation exchange tensors: allreduce, reduce-scatter,
// all-gather, broadcast, reduce, all-to-all, barrier, and point-to-point messages for the transfer
// of state. It is independent of the control plane.
//
// A process has one Endpoint for its whole life, and one Communicator for each generation that it
// takes part in:
//
//	New ──────── connected ─────── Close        every later call: ErrClosed
//	 │               │
//	 └──── failure ──┴──► poisoned ── Close     every pending and later call: the failure
//
// A communicator fails once, as a whole, on every rank, and for good. A rank that sees a broken
// connection says which rank is lost, and everybody passes that on, so that all ranks return a
// *PeerLostError with the same rank. The result of an operation that fails is void, and its buffer
// is undefined. Callers agree on the outcome at their next commit, and training continues with a
// new generation.
//
// # Connections
//
// Control frames (heartbeats, goodbye, abort) have connections of their own, on which nothing large
// is ever in the way: every rank dials the ranks at distances of 1, 2, 4 and so on around the ring
// (package control). Package exec moves the data:
//
//	among ranks of one machine     through memory that they share, see package shm
//	otherwise                      over connections that are dialed when first needed
//
// A plan (package schedule) says who sends what to whom over connections; Rule chooses it by
// operation, world and size. The calling thread alone carries out small operations, with plain
// system calls; two threads carry out large ones.
//
// A heartbeat says that the process runs, not that its program makes progress: a rank that computes
// for an hour is waited for. What watches its steps must notice that it hangs. A heartbeat also
// says in which operation the rank is, so that programs that diverged are told so.
//
// # Results
//
// All ranks get the same bits, whatever the timing: each element is either reduced by one rank and
// then copied, or reduced by all in the same order. Another world size, order of ranks or algorithm
// may round differently. (If several contributions are NaN, the payload of the result may differ
// between machines of different kinds.)
//
// Connections carry numbers in the byte order of the machine; the handshake refuses a peer of the
// other order. It proves knowledge of the job's token in both directions (HMAC-SHA256), but does
// not protect what follows.
package collective
