// Package control keeps the ranks of a generation together. It accepts and authenticates their
// connections, exchanges heartbeats, detects lost ranks, and makes all ranks fail with the same
// error.
//
// An Endpoint accepts connections for all generations of a process and hands each to the Session it
// belongs to. A Session is one rank's membership in one generation. It has a control connection to
// the ranks at distances of 1, 2, 4 and so on around the ring, so a generation of n ranks has
// n log2 n of them, and what one rank says reaches all in log2 n hops. They never carry data, so an
// abort is never queued behind any.
//
// The data connections of a session belong to its DataPlane, see package exec.
package control
