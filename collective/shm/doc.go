// Package shm implements collective operations among processes of one machine over shared memory.
//
// A Group has one shared segment. Each member has a block of counters in it that only this member
// writes, and a slot for small data. An operation is a round:
//
//	enter   publish a header: the operation and where my data is; advance a counter
//	        wait until all others have entered, and compare their operations with mine
//	work    read the others' data, combine, advance a counter by the bytes done
//	leave   advance a counter; wait until nobody reads my data any more
//
// Data of up to 16 bytes is part of the header and data of up to SmallBytes is copied into the
// slot. Headers and slots are double-buffered, so such a round has no leave phase. Larger data
// stays where it is: memory of an Arena is mapped by all members and read in place, other memory is
// read with process_vm_readv(2) (single copy). Where that is forbidden, the data is copied through
// staging buffers in the segment.
//
// No process ever writes into the memory of another one. A member that is stopped in the middle of
// an operation and continues later therefore does no harm, and a member whose operation failed may
// reuse its buffers at once.
//
// A waiting member spins for a moment and then sleeps on its doorbell, a futex(2), which the others
// ring if it is asleep. The death of a member is noticed only where members read each other's
// memory. Otherwise the caller must notice it and call Abort, which wakes all waiters of this
// process.
package shm
