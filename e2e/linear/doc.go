// Package linear checks what clients of a real control plane saw against a model in which
// everything happens at one moment. Documents of buckets are checked the same way beside the
// adapter, in package jetstream.
package linear
