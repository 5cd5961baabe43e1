// Package vigil holds connections that end in the moment in which this process is killed.
//
// The connections of a process that was killed end last: the system takes its memory back
// first, which takes about 0.1 ms for each MiB, so those of a process of many GiB end after
// seconds. But descriptors need not belong to all of a process. What is held here belongs to
// a single thread with descriptors of its own, which has nothing else to do: it dies at once,
// and its connections with it, unless it happens to be the last of its process to go.
//
// Whoever lets go of a connection says so in a byte. So an end without one is a death, and
// nobody has to be asked.
//
// It needs Linux, and a system that permits the thread (unshare of CLONE_FILES), which the
// profile of some containers does not.
package vigil
