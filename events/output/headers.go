package output

// Headers of a chunk of workers' output on the log stream. The data is the lines, each ended by a
// line feed, or by a carriage return if the next one replaces it; package output reads them.
const (
	HeaderNode       = "Regroup-Node"
	HeaderSlot       = "Regroup-Slot"
	HeaderRank       = "Regroup-Rank"       // at the time of writing; -1 = none
	HeaderGeneration = "Regroup-Generation" // a number; 0 = none
	HeaderStream     = "Regroup-Stream"     // stdout, stderr, or regroup for the agent's own output
)
