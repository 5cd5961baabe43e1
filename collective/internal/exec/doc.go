// Package exec carries out the operations of a generation over its data connections.
//
// An Engine runs one collective operation at a time, in the order of the calls. Ranks of one
// machine communicate through shared memory (package shm). Other operations follow a plan (package
// schedule) over data connections, which are dialed when a plan first needs them; a table chooses
// the plan by operation, world and size. The calling thread alone carries out small plans, with
// plain system calls; a second thread sends in large ones. In generations of several machines an
// operation is divided into parts within and between the machines where that sends less.
//
// Point-to-point messages have connections of their own and do not wait for collective operations.
package exec
