// Package topology defines the streams and buckets of Regroup on NATS JetStream, as data.
package topology

import (
	"fmt"
	"slices"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/access"
)

// Sizes of the topology, in bytes. A server refuses a stream whose MaxBytes it cannot reserve, so
// their sum (about 2.6 GiB) must fit into its store limit.
const (
	mib = 1 << 20

	// MaxMessage limits one stored message; it equals the server's default max_payload.
	MaxMessage = access.MaxMessage

	commandsBytes = 64 * mib
	factsBytes    = 1024 * mib
	launchesBytes = 256 * mib
	logsBytes     = 512 * mib
	spansBytes    = 256 * mib
	bucketBytes   = 128 * mib
)

// Ages of stored messages. Rendezvous publishes a launch again if an agent's heartbeat lacks it.
const (
	day          = 24 * time.Hour
	commandsAge  = 7 * day
	factsAge     = 7 * day
	launchesAge  = 30 * day
	logsAge      = 3 * day
	spansAge     = day
	dedupeWindow = 2 * time.Minute
	// factsPerSubject limits the facts of each kind about one job, or node, so that none can
	// displace all others. It is far above what the largest job publishes before its readers have
	// read it: a start for each of 40,000 workers.
	factsPerSubject = 100_000
	bucketHistory   = 1 // with more, a removed or expired revision restores the previous one
)

// Streams returns every stream, including buckets. Direct gets are disabled everywhere: a replica
// may answer them with an older value.
func Streams(replicas int) []js.StreamConfig {
	stream := func(name, subjects, what string, bytes int64, age time.Duration) js.StreamConfig {
		return js.StreamConfig{
			Name: name, Subjects: []string{subjects}, Description: what,
			Storage: js.FileStorage, Retention: js.LimitsPolicy, Discard: js.DiscardOld,
			MaxBytes: bytes, MaxAge: age, MaxMsgSize: MaxMessage,
			MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxConsumers: access.ConsumersOfStream,
			ConsumerLimits: js.StreamConsumerLimits{InactiveThreshold: access.UnusedFor(name)},
			Duplicates:     dedupeWindow, Replicas: replicas,
		}
	}
	commands := stream(events.StreamCommands, events.AllCommands, "Regroup: what clients ask for", commandsBytes, commandsAge)
	// A full command stream refuses: dropping an old command would lose a job that was accepted.
	commands.Retention, commands.Discard = js.WorkQueuePolicy, js.DiscardNew
	facts := stream(events.StreamFacts, events.AllFacts, "Regroup: what happened", factsBytes, factsAge)
	facts.MaxMsgsPerSubject = factsPerSubject
	launches := stream(events.StreamLaunches, events.AllLaunches, "Regroup: what each node must run, last one per node and job", launchesBytes, launchesAge)
	launches.MaxMsgsPerSubject, launches.AllowMsgTTL = 1, true // a stop is not kept for long
	logs := stream(events.StreamLogs, events.AllLogs, "Regroup: output of workers", logsBytes, logsAge)
	spans := stream(events.StreamSpans, events.AllSpans, "Regroup: OTLP spans", spansBytes, spansAge)
	all := []js.StreamConfig{commands, facts, launches, logs, spans}
	for _, service := range events.Services() {
		b := service.Bucket
		s := stream(events.BucketStream(b), events.BucketSubject(b, ">"), "Regroup: documents of "+service.Name, bucketBytes, 0)
		s.MaxMsgsPerSubject, s.Discard = bucketHistory, js.DiscardNew
		s.DenyDelete, s.AllowRollup = true, true // as in every key-value bucket
		s.AllowMsgTTL = true                     // deletions expire
		all = append(all, s)
	}
	return all
}

// Differences lists what this code relies on and have lacks in comparison to want.
func Differences(have, want js.StreamConfig) []string {
	var out []string
	diff := func(what string, h, w any) {
		if h != w {
			out = append(out, fmt.Sprintf("%s is %v, want %v", what, h, w))
		}
	}
	if !slices.Equal(have.Subjects, want.Subjects) {
		out = append(out, fmt.Sprintf("subjects are %q, want %q", have.Subjects, want.Subjects))
	}
	diff("retention", have.Retention, want.Retention)
	diff("storage", have.Storage, want.Storage)
	diff("discard", have.Discard, want.Discard)
	diff("max_bytes", have.MaxBytes, want.MaxBytes)
	diff("max_age", have.MaxAge, want.MaxAge)
	diff("max_msg_size", have.MaxMsgSize, want.MaxMsgSize)
	diff("max_msgs", have.MaxMsgs, want.MaxMsgs)
	diff("max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	diff("duplicate_window", have.Duplicates, want.Duplicates)
	diff("allow_direct", have.AllowDirect, want.AllowDirect)
	diff("allow_msg_ttl", have.AllowMsgTTL, want.AllowMsgTTL)
	diff("deny_delete", have.DenyDelete, want.DenyDelete)
	diff("allow_rollup_hdrs", have.AllowRollup, want.AllowRollup)
	return out
}
