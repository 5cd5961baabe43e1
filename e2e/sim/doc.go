// Package sim runs all machines of the system together: one goroutine, virtual time, faults from a
// seed.
//
// The services are the real controller.Core, as controller.Host runs it, with the real machines,
// routes, reconciliations and consumers; the agents are the real agent/worker machine. Documents
// and streams are those of events/memory, whose conformance suite is that of the NATS ports; faults
// intercept its operations. The simulation itself models delays and deliveries, clocks, processes,
// and the data plane of the workers.
//
//	scenario(seed) ──► world ──► events in order of virtual time ──► invariants after every save, fact and action
//	   faults ───────────┘                                                  │ violated
//	                                                          shrink: drop faults one by one
//
// A seed draws the size of everything and a schedule of faults up front, so a failing run can be
// shortened by dropping faults; what is left is kept in testdata/regressions. From a certain moment
// on nothing fails any more: then every job must end. Invariants are listed in invariants.go.
package sim
