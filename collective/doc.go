// Package collective lets the ranks of one generation exchange tensors: allreduce,
// broadcast, all-gather, barrier, and direct messages for the transfer of state.
// It knows nothing of the control plane.
//
// A process has one Endpoint for its whole life, and one Communicator for each
// generation that it takes part in:
//
//	New ──────── connected ─────── Close        every later call: ErrClosed
//	 │               │
//	 └──── failure ──┴──► poisoned ── Close     every pending and later call: the failure
//
// A communicator fails once, as a whole, on every rank, and for good. The rank
// next to a broken socket says who is gone, both ways around the ring, so that all
// ranks return a *PeerLostError with the same rank. What an operation did before it
// failed is void; its buffer holds anything. Outcome is agreed at the next commit,
// by the caller, and training goes on with a new generation.
//
// # Connections
//
// Every rank dials the next one of the ring. Data flows forward; short control
// frames (heartbeats, goodbye, abort) flow both ways. Backward there is no data, so
// an abort can always travel backward however full the forward direction is: this
// is why a failure reaches everyone. Send and Recv open direct connections when
// first used.
//
// A heartbeat says that the process runs, not that its program makes progress: a
// rank that computes for an hour is waited for. To notice that it hangs is the
// business of whoever watches its steps.
//
// # What is promised about results
//
// All ranks get the same bits: each element is reduced by one rank, in an order
// fixed by the ring, and then copied. Another world size, or another rank order,
// may round differently.
//
// The wire carries numbers in the byte order of the machine; the handshake refuses
// a peer of the other order. It proves knowledge of the job's token in both
// directions (HMAC-SHA256), but does not protect what follows.
package collective
