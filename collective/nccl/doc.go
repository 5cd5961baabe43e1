// Package nccl reaches NVIDIA's NCCL and the CUDA driver from a program that was
// built without them. Both are found at run time, through purego and without cgo;
// where one is absent, Open says what was tried, and a caller shows that before it
// falls back on the processor.
//
//	Library ── OpenDevice ──► Device ── Init ──► Comm ── Do ──► Work
//
// A Device is one GPU and one operating system thread that makes every call for it:
// a CUDA context and a group of NCCL calls belong to a thread. Only the calls that
// end a communicator run elsewhere, each on a thread of its own, because they are
// what frees a thread that hangs.
//
// A Comm is one rank of one NCCL communicator. It is always non-blocking: NCCL's
// calls return at once, and the package asks for their outcome until there is one,
// the context ends, or the communicator fails.
//
//	Init ──────── ready ────────── Close
//	 │              │
//	 └── failure ───┴──► failed ── Abort, or Reform with those that are left
//
// A communicator fails once and for good, from an error that NCCL reports (it is
// asked every few milliseconds, also while nobody waits), from Abort, or from a
// context that ends while NCCL still works on a launch. What an operation did before
// is void and its output holds anything: who wants to try again keeps the input.
//
// NCCL does not notice every death: inside one host its kernels spin for ever on the
// memory of a process that is gone. Whoever uses a Comm by itself must notice, and then
// call Abort or Reform on every rank that is left. An Engine does both: it has a
// collective.Communicator that says who is lost, and shares its fate.
//
//	NewEngine ──── operations ──── Next, in the next generation ──── Close
//
// It reduces inside a node through NCCL, and between nodes through pinned memory of the
// host and the Communicator. Where there is no GPU the Communicator alone is used.
//
// # What the package does not do
//
// A Comm knows nothing of who takes part. Two communicators of one process must be
// launched in the same order on all ranks. Only NCCL 2.14 and newer can be used;
// Features says what the library at hand can do beyond that.
//
// NCCL reads its NCCL_ variables from the environment with which the process was
// started: os.Setenv does not reach it in a program without cgo.
//
// Behaviour of NCCL that a comment states was read in its manual and its sources (2.14.3 to
// 2.30.7), unless it names a measurement.
package nccl
