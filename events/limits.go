package events

import (
	"fmt"
	"strings"
)

// Limit is the most that an input may have of something. Limits are checked before an input costs more than its size; what is
// over one is refused with its name, except texts, which are shortened and say so.
type Limit struct {
	Name string
	Most int
	Unit string
	What string // a sentence for docs/limits.md
}

// The limits of what comes in. docs/limits.md is generated from them.
var (
	LimitCommand  = Limit{"command", MaxPayload, "bytes", "The data of a command, compressed or not."}
	LimitMessage  = Limit{"message", 1 << 20, "bytes", "One message, request, signal or document as it is sent or stored; the broker's max_payload."}
	LimitUnpacked = Limit{"unpacked", 16 << 20, "bytes", "The data of a fact or a document after it is unpacked."}
	LimitEnvelope = Limit{"envelope", 1 << 10, "bytes", "The CloudEvents attributes `id`, `source`, `subject` and every extension, each."}
	LimitDepth    = Limit{"depth", 64, "levels", "Lists and objects inside each other."}
	LimitEntries  = Limit{"entries", 100_000, "entries", "The items of one list or object."}
	LimitNames    = Limit{"names", 256, "entries", "Metrics of one report."}
	LimitWord     = Limit{"word", 256, "bytes", "An id, an address, a hash, or the name of a metric."}
	LimitText     = Limit{"text", 1 << 10, "bytes", "A reason or a detail. A longer one is shortened in its middle."}
	LimitLine     = Limit{"line", 2 << 10, "bytes", "One of the last lines of a worker's output in the fact of its exit. A longer one is shortened in its middle."}
	LimitLines    = Limit{"lines", 8 << 10, "bytes", "All of these lines. The oldest are left out, and a first line says how many."}
	LimitFindings = Limit{"findings", 100, "entries", "What is said to be wrong with one command. More are only counted."}
	LimitSlots    = Limit{"slots", 4096, "slots", "The slots of one node."}
	LimitWorkers  = Limit{"workers", 100_000, "workers", "The workers of one job, `nodes.max` times `workersPerNode` included, and the places of one list."}
	LimitFailures = Limit{"failures", 10_000, "failures", "`failures.max`: so many are remembered."}
	LimitEpochs   = Limit{"epochs", 10_000, "entries", "The epochs of one ledger. A longer one counts as none."}
	LimitSamples  = Limit{"samples", 1 << 48, "samples", "`data.samples`."}
	LimitProof    = Limit{"proof", 1 << 30, "samples", "The samples of an epoch whose sum of hashes is checked by `regroup status`. Of a larger one only the counts are."}
	LimitErrors   = Limit{"error-file", 64 << 10, "bytes", "What is read of the file that `TORCHELASTIC_ERROR_FILE` names."}
)

// Limits is the table of them.
func Limits() []Limit {
	return []Limit{
		LimitCommand, LimitMessage, LimitUnpacked, LimitEnvelope, LimitDepth, LimitEntries, LimitNames, LimitWord, LimitText, LimitLine,
		LimitLines, LimitFindings, LimitSlots, LimitWorkers, LimitFailures, LimitEpochs, LimitSamples, LimitProof, LimitErrors,
	}
}

// String names the limit in a refusal.
func (l Limit) String() string {
	return fmt.Sprintf("limit %s: %d %s", l.Name, l.Most, l.Unit)
}

// Over makes the refusal of something that has have of what the limit bounds; nil = it is within.
func (l Limit) Over(path string, have int) *Finding {
	if have <= l.Most {
		return nil
	}
	return &Finding{Path: path, Message: fmt.Sprintf("has %d %s, at most %d are allowed (limit %s)", have, l.Unit, l.Most, l.Name)}
}

// LimitsMarkdown renders the table for docs/limits.md.
func LimitsMarkdown() string {
	var b strings.Builder
	b.WriteString(limitsIntro)
	for _, l := range Limits() {
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", l.Name, l.Most, l.Unit, l.What)
	}
	return b.String()
}

const limitsIntro = `# Limits

Generated from ` + "`events/limits.go`" + `. They bound what one message may cost its reader. What is over a limit is refused with the limit's name;
texts are shortened instead, and say how much was left out.

| limit | most | unit | of what |
|---|---:|---|---|
`
