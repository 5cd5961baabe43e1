// Package shm carries out collective operations among processes of one machine through
// memory that they share.
//
// A Group has one shared segment. Each member has a block of counters in it that only it
// writes, and a slot for small data. An operation is a round:
//
//	enter   describe the operation and where my data is; count up
//	        wait until all others have entered, and compare what they describe
//	work    read the others' data, combine, count up the bytes that are done
//	leave   count up; wait until nobody reads my data any more
//
// Data of up to SmallBytes is copied into the slot, that of some 16 bytes beside the
// description; both take turns, so that such a round needs no leaving. Larger data stays where it is: memory from an Arena is mapped by all
// members and read as it is, any other memory is read with process_vm_readv(2); where that
// is not allowed, it is copied through the segment, a window at a time.
//
// No process ever writes into memory of another one. So a member that is stopped in the
// middle of an operation and goes on later can harm nobody, and whoever fails may reuse its
// buffers at once.
//
// Whoever waits spins for a moment and then sleeps on its own doorbell, a futex(2), which
// others ring if they find it asleep. A member that dies is not noticed here: somebody
// else must call Abort, which wakes whoever waits in this process.
//
// Linux only.
package shm
