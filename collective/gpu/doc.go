// Package gpu performs the collectives of a generation on GPUs. It reduces inside a node through
// NCCL, and between nodes through pinned memory of the host and a collective.Communicator. Where a
// rank has no GPU the Communicator alone is used.
//
//	New ──── operations ──── Next, in the next generation ──── Close
//
// An Engine fails with its Communicator, which reports the lost rank, and ends NCCL then: NCCL does
// not detect every death by itself. Package nccl calls the native libraries; its doc says what that
// needs.
package gpu
