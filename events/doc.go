// Package events is the vocabulary of Regroup: everything that can be said between its processes, and
// the ports through which it is said.
//
// There are five classes of message. A fact is something that happened: durable, past tense, one writer
// per kind. A command is asked of the system by a client: durable, answered by a fact. A request is asked
// of a service and answered once, over core messaging. A signal may be lost and nothing may depend on any
// single one arriving. A launch tells one node what it must run for one job; the last one is kept.
//
// Facts and commands travel as CloudEvents 1.0. Names of subjects, streams, buckets and headers are spelt
// in subjects.go, event types in catalog.go, and nowhere else in the tree.
package events
