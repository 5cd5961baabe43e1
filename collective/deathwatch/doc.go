// Package deathwatch reports the death of a peer process through a connection that ends the
// moment the process is killed.
//
// The kernel closes the descriptors of a killed process only after it has reclaimed the memory,
// which takes about 0.1 ms per MiB: the connections of a process of many GiB end seconds after
// its death. Descriptors need not be shared by all threads of a process, though. The connections
// watched here belong to a single thread that has a descriptor table of its own and does nothing
// else. That thread exits at once and closes them, unless it happens to be the last thread of
// its process to exit.
//
// A side that stops watching writes one byte first. An end of the connection without that byte
// is therefore a death, and no further check is needed.
//
// The package needs permission to give a thread its own descriptor table (unshare(CLONE_FILES)),
// which some container profiles deny.
package deathwatch
