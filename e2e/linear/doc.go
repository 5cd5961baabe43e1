// Package linear checks that the histories of clients of a real control plane are linearizable.
// Package jetstream has the same check for documents of buckets.
package linear
