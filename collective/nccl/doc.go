// Package nccl calls NVIDIA's NCCL and the CUDA driver from a program that was built without them.
// Both are loaded at run time, through purego and without cgo; if one is absent, the error of Open
// lists what was tried, and a caller reports it before it falls back to the CPU.
//
//	Library ── OpenDevice ──► Device ── Init ──► Comm ── Do ──► Work
//
// A Device is one GPU and one operating system thread that makes every call for it:
// a CUDA context and a group of NCCL calls belong to a thread. Only the calls that
// end a communicator run elsewhere, each on a thread of its own, because they
// unblock the thread of a device that hangs.
//
// A Comm is one rank of one NCCL communicator. It is always non-blocking: NCCL's calls return at
// once, and the package polls for their result until there is one, the context ends, or the
// communicator fails.
//
//	Init ──────── ready ────────── Close
//	 │              │
//	 └── failure ───┴──► failed ── Abort, or Reform with those that are left
//
// A communicator fails once and for good, from an error that NCCL reports (it is polled every few
// milliseconds, also while no caller waits), from Abort, or from a context that ends while NCCL
// still works on a launch. The results of running operations are void and their outputs undefined:
// a caller that wants to retry keeps the input.
//
// NCCL does not detect every death: inside one host its kernels spin for ever on the memory of a
// dead process. A program must detect deaths itself, and then call Abort or Reform on every
// surviving rank. Package gpu does both, and reduces between nodes as well.
//
// A Stage copies memory of a GPU through pinned memory of the host, for work that the host does on
// it.
//
// # What the package does not do
//
// A Comm does not manage membership. Two communicators of one process must be launched in the same
// order on all ranks. The package needs NCCL 2.14 or newer; Features lists the version-dependent
// features.
//
// NCCL reads its NCCL_ variables from the environment with which the process was
// started: os.Setenv does not reach it in a program without cgo.
//
// Behaviour of NCCL that a comment states was read in its manual and its sources (2.14.3 to
// 2.30.7), unless it names a measurement.
package nccl
