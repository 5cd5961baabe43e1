// Package cluster starts the processes of a cluster for tests and benchmarks, kills and restarts
// them, and connects as a client.
package cluster
