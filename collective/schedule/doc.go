// Package schedule answers one question: in a ring of ranks, who sends which
// part of a buffer to whom, and after what?
//
// A rank only ever sends to the next rank of the ring and receives from the
// previous one. A Plan is the view of one rank: an ordered list of sends and an
// ordered list of receives. Send number i of a rank is receive number i of its
// successor, so that both ends agree without any negotiation.
//
// Receives are executed in order by one party and sends in order by another;
// After ties the two together. A plan never needs a receive to wait for a send
// that could itself wait for that receive, hence a ring in which every rank
// executes its plan cannot deadlock, however small the buffers of the network.
//
// The package is pure: it moves no data, keeps no time and starts nothing.
//
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", J. Parallel Distrib. Comput. 69 (2009).
package schedule
