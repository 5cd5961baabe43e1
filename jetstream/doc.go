// Package jetstream implements the ports of package events on NATS JetStream. It is the only
// package of the tree that imports NATS.
//
//	StartServer -> Server     a server inside this process, alone or in a cluster
//	Connect     -> Conn       one connection; Conn.Ports gives events.Ports
//	Conn.Ensure, Conn.Verify  the streams and buckets, as data in topology.go
//
// Two rules hold everywhere. Reads for decisions go to the stream's leader, because
// replicas answer direct gets from their own, possibly older, copy. Every reader keeps its own
// position and recreates its consumer after any error, because the server forgets consumers in
// memory when it restarts.
package jetstream
