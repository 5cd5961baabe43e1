// Package controller runs the pure state machines of the services.
//
//	inputs ──► load document ──► apply each ──► one compare-and-set ──► publish the outbox ──► settle the inputs
//	               ▲                                   │
//	               └──────── another replica won ◄─────┘
//
// Processor is this line for one entity at a time. Core adds the queue of inputs, batches and
// timers; it has no goroutine and reads no clock of its own. Host runs a Core on the ports: it is
// the only place in services/ with goroutines and channels. The simulation runs the same Core in
// virtual time.
//
// Any number of replicas may run. The compare-and-set lets one of them win, the ring of input ids
// in a document keeps an input from being applied twice, and facts that a dead replica has stored
// but not published are published by whichever replica notices them waiting.
package controller
