// Package schedule answers one question: in a collective operation, who sends which
// part of a buffer to whom, and after what?
//
// A Plan is the view of one rank: an ordered list of sends and an ordered list of
// receives. The k-th send of rank a to rank b is the k-th receive of rank b from
// rank a, so that both ends agree without any negotiation.
//
// Receives are executed in order by one party and sends in order by another; After
// ties the two together. What must be combined with what is there already first
// arrives aside and waits there for its After, everything else arrives in its place
// and waits before it does. Every plan here completes even if no network had any
// buffer at all, provided that every rank executes its plan.
//
// All plans but the direct ones send along a ring, a tree or a hypercube, so that a
// rank talks to one, two or log2(World) others.
//
// The package is pure: it moves no data, keeps no time and starts nothing.
//
// Sources: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", J. Parallel Distrib. Comput. 69 (2009); R. Thakur, R.
// Rabenseifner and W. Gropp, "Optimization of collective communication operations in
// MPICH", Int. J. High Perform. Comput. Appl. 19 (2005); J. Bruck et al., "Efficient
// algorithms for all-to-all communications in multiport message-passing systems",
// IEEE Trans. Parallel Distrib. Syst. 8 (1997).
package schedule
