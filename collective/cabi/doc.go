// Command cabi is libregroup.so, the C library of Regroup: package collective and package elastic for programs in other
// languages. regroup.h says what it offers and promises; python/ is built on it.
//
//	make libregroup
//
// The way of a call:
//
//	rg_… in shim.c ──► rgo_… in export_*.go ──► the other Go files
//	refuses in a         C types become Go's,      the work, without C
//	forked child         errors become codes
//
// NCCL and the CUDA driver are loaded by rg_gpu_open, and not before.
//
// A small operation is carried out by the calling thread, from the first line of C to the last memory access: to hand it
// to a goroutine would cost ten times as much as the operation.
package main
