package events

// Headers of a chunk of workers' output on the log stream. The data is the lines, each ended by a line feed.
const (
	HeaderLogNode       = "Regroup-Node"
	HeaderLogSlot       = "Regroup-Slot"
	HeaderLogRank       = "Regroup-Rank"       // at the time of writing; -1 = none
	HeaderLogGeneration = "Regroup-Generation" // a number; 0 = none
	HeaderLogStream     = "Regroup-Stream"     // stdout, stderr, or regroup for the agent's own words
)
