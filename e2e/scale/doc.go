// Command scale measures the control plane with many agents on this machine and writes a report.
//
//	go run ./e2e/scale -out docs/benchmarks.md
//
// Brokers (three) and services (two replicas of each) are processes of bin/regroup. Agents are
// simulated: light clients that share a few connections, each with its own subscriptions. Such an
// agent sends hellos, heartbeats at the real interval with its launch revisions, answers pings,
// receives its launches and the notices, and joins for all its slots in one request, as the real
// one does under restart recovery. It starts no processes and publishes no facts about workers.
package main
