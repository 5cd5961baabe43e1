// Package cluster starts the processes of a cluster for tests and benchmarks, kills and restarts
// them, and talks to it as a client does.
package cluster
