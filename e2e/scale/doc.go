// Command scale measures the control plane with many agents on this machine and writes the results
// down.
//
//	go run ./e2e/scale -out docs/benchmarks.md
//
// Brokers (three) and services (two replicas of each) are processes of bin/regroup. Agents are
// simulated: light clients that share a few connections, each with subscriptions of its own. Such
// an agent says hello, sends heartbeats at the real period with the launch revisions it holds,
// answers pings, hears its launches and the notices, and joins for all its places in one request,
// as the real one does under restart recovery. It starts no processes and tells no facts about
// workers.
package main
