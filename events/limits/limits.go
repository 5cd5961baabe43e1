// Package limits defines the maximum sizes of inputs from outside, as a table, and shortens texts
// that exceed theirs. docs/limits.md is generated from it.
package limits

import (
	"fmt"
	"strings"
)

// Limit is the maximum size of an input. Limits are checked before an input costs more than its
// size. An input that exceeds one is refused with the limit's name, except texts, which are
// shortened with a mark.
type Limit struct {
	Name string
	Max  int
	Unit string
	What string // a sentence for docs/limits.md
}

// The limits of inputs. docs/limits.md is generated from them.
var (
	Command     = Limit{"command", 64 << 10, "bytes", "The data of a command, compressed or not."}
	Message     = Limit{"message", 1 << 20, "bytes", "One message, request, signal or document as it is sent or stored; the broker's max_payload."}
	Unpacked    = Limit{"unpacked", 16 << 20, "bytes", "The data of a fact or a document after it is unpacked."}
	Envelope    = Limit{"envelope", 1 << 10, "bytes", "The CloudEvents attributes `id`, `source`, `subject` and every extension, each."}
	Depth       = Limit{"depth", 64, "levels", "Lists and objects inside each other."}
	Entries     = Limit{"entries", 100_000, "entries", "The items of one list or object."}
	Names       = Limit{"names", 256, "entries", "Metrics of one report."}
	Word        = Limit{"word", 256, "bytes", "An id, an address, a hash, or the name of a metric."}
	Text        = Limit{"text", 1 << 10, "bytes", "A reason or a detail. A longer one is shortened in its middle."}
	Line        = Limit{"line", 2 << 10, "bytes", "One of the last lines of a worker's output in the fact of its exit. A longer one is shortened in its middle."}
	Lines       = Limit{"lines", 8 << 10, "bytes", "All of these lines. The oldest are left out, and a first line says how many."}
	FieldErrors = Limit{"findings", 100, "entries", "Findings about one command. More are only counted."}
	Slots       = Limit{"slots", 4096, "slots", "The slots of one node."}
	Workers     = Limit{"workers", 100_000, "workers", "The workers of one job, `nodes.max` times `workersPerNode` included, and the places of one list."}
	Failures    = Limit{"failures", 10_000, "failures", "`failures.max`: so many are remembered."}
	Epochs      = Limit{"epochs", 10_000, "entries", "The epochs of one ledger. A longer one counts as none."}
	Samples     = Limit{"samples", 1 << 48, "samples", "`data.samples`."}
	Proof       = Limit{"proof", 1 << 30, "samples", "The samples of an epoch whose sum of hashes is checked by `regroup status`. Of a larger one only the counts are."}
	Batch       = Limit{"batch", 256, "events", "The events of one batch that is sent to a gateway; together with `message`."}
	Spans       = Limit{"spans", 8 << 20, "bytes", "The spans of one request to a gateway, unpacked; packed it is bounded by `message`."}
	Errors      = Limit{"error-file", 64 << 10, "bytes", "What is read of the file that `TORCHELASTIC_ERROR_FILE` names."}

	Secret = Limit{"secret", 64 << 10, "bytes", "The value of a secret of a job."}

	StoreKey         = Limit{"store-key", 8 << 10, "bytes", "A key in a request to the TCPStore that an agent serves. Over this limit or the next five the client is disconnected, and the agent's log says why."}
	StoreValue       = Limit{"store-value", 8 << 20, "bytes", "A value in such a request."}
	StoreKeys        = Limit{"store-keys", 1 << 17, "keys", "The keys of one such request."}
	StoreMemory      = Limit{"store-memory", 1 << 30, "bytes", "One TCPStore: keys, values, clients that wait, and requests that are being received."}
	StoreConnections = Limit{"store-connections", 1 << 16, "connections", "The connections to one TCPStore. A client of PyTorch 1.13 has two, a newer one has one."}
	StoreSilent      = Limit{"store-silent", 1 << 15, "connections", "Those of them that have sent nothing yet. A client of PyTorch 1.13 has one."}
)

// All returns all limits.
func All() []Limit {
	return []Limit{
		Command, Message, Unpacked, Envelope, Depth, Entries, Names, Word, Text, Line,
		Lines, FieldErrors, Slots, Workers, Failures, Epochs, Samples, Proof, Batch, Spans, Errors, Secret,
		StoreKey, StoreValue, StoreKeys, StoreMemory, StoreConnections, StoreSilent,
	}
}

// String returns the name of the limit in a refusal.
func (l Limit) String() string {
	return fmt.Sprintf("limit %s: %d %s", l.Name, l.Max, l.Unit)
}

// Markdown renders the table for docs/limits.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString(limitsIntro)
	for _, l := range All() {
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", l.Name, l.Max, l.Unit, l.What)
	}
	return b.String()
}

const limitsIntro = `# Limits

Generated from ` + "`events/limits/limits.go`" + `. They bound what one message may cost its reader. What is over a limit is refused with the limit's name;
texts are shortened instead, and say how much was left out.

| limit | most | unit | of what |
|---|---:|---|---|
`
