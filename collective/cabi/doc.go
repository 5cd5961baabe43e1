// Command cabi is libregroup.so, the C library of Regroup: packages collective and elastic for
// programs in other languages. regroup.h says what it offers and promises; python/ is built on it.
//
//	make libregroup
//
// The path of a call:
//
//	rg_… in shim.c ──► rgo_… in Go          ──► the other functions
//	refuses in a         C types become Go's,      the work, without C
//	forked child         errors become codes
//
// NCCL and the CUDA driver are loaded by rg_gpu_open, and not before.
//
// The calling thread carries out a small operation alone, from the first line of C to the last
// memory access: to hand it to a goroutine would cost ten times as much as the operation.
package main

// main is never called: the library is loaded, not run.
func main() {}
