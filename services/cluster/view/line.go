package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// Line is one line of a worker's output.
type Line struct {
	Time       time.Time        `json:"time"` // the broker's clock
	Job        ident.JobID      `json:"job"`
	Place      ident.Place      `json:"place"`
	Rank       ident.Rank       `json:"rank"`       // NoRank = in no generation yet
	Generation ident.Generation `json:"generation"` // 0 = in none yet
	Stream     string           `json:"stream,omitempty"`
	Text       string           `json:"text"`           // with the colours of terminals that it has
	Open       bool             `json:"open,omitempty"` // it is not finished: the next line of the place and the stream replaces it
	Sequence   uint64           `json:"sequence"`       // of its chunk in the stream of output
}

// Source returns where the line comes from: the next one from there replaces it if it is open.
func (l Line) Source() output.Source { return output.Source{Place: l.Place, Stream: l.Stream} }

// Lines splits a stored chunk of a job's output. Its agent has labelled it with the rank and the
// generation of the worker.
func Lines(job ident.JobID, m broker.Stored) (all []Line) {
	label := func(name string) string { return append(m.Header[name], "")[0] }
	l := Line{Rank: ident.NoRank, Time: m.Time, Job: job, Sequence: m.Sequence, Stream: label(output.HeaderStream)}
	parts := strings.Split(m.Subject, ".")
	if len(parts) < 2 {
		return nil
	}
	slot, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return nil
	}
	l.Place = ident.Place{Node: ident.NodeID(parts[len(parts)-2]), Slot: ident.Slot(slot)}
	if n, err := strconv.Atoi(label(output.HeaderRank)); err == nil {
		l.Rank = ident.Rank(n)
	}
	if g, err := strconv.ParseUint(label(output.HeaderGeneration), 10, 64); err == nil {
		l.Generation = ident.Generation(g)
	}
	for x := range output.Lines(m.Data) {
		l.Text, l.Open = x.Text, x.Open
		all = append(all, l)
	}
	return all
}

// Ranks is a set of ranks; an empty one has all lines, also those without a rank.
type Ranks [][2]int

// ParseRanks reads 0,3-5; false if a text is something else.
func ParseRanks(text string) (all Ranks, ok bool) {
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from < 0 || to < from {
			return nil, false
		}
		all = append(all, [2]int{from, to})
	}
	return all, true
}

// Has reports whether a line is of one of the ranks.
func (r Ranks) Has(l Line) bool {
	n := int(l.Rank)
	return len(r) == 0 || slices.ContainsFunc(r, func(span [2]int) bool { return span[0] <= n && n <= span[1] })
}
