// Package loop hosts pure machines: it is the only place in services/ with goroutines, channels and timers.
//
//	inputs ──► load document ──► Step each ──► one compare-and-set ──► tell the outbox ──► settle the inputs
//	               ▲                                │
//	               └────── somebody was first ◄─────┘
//
// Processor is that line without goroutines and clocks; Host feeds it from the ports. Any number of replicas may run: the
// compare-and-set lets one of them win each turn, the ring of input ids in the document keeps an input from being taken
// twice, and facts that a dead replica had decided but not told are told by whoever notices them waiting.
package controller
