package plan

import (
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
)

// shortfall says why a placed job has fewer slots than it wants, or "" if it has all. What it has
// may be no multiple that it trains with, and so may what is free: the multiple explains both.
func (p *pool) shortfall(j *Job, row events.PlacementView, holder ident.JobID) string {
	w, has := row.Workers, len(row.Places)
	switch {
	case has >= w.Max:
		return ""
	case has < w.Min:
		return fmt.Sprintf("has %d of at least %s: %s", has, english.Plural(w.Min, "worker"), p.capacity())
	}
	text := fmt.Sprintf("has %d of up to %s", has, english.Plural(w.Max, "worker"))
	if j.MultipleOf > 1 {
		text += fmt.Sprintf(", and trains with a multiple of %d", j.MultipleOf)
	}
	if holder != "" && len(p.free) > 0 {
		return fmt.Sprintf("%s: free slots are kept for %s, which waits", text, holder)
	}
	return text + ": " + p.capacity()
}

// waitReason returns a sentence that says why a job is not placed. front: it is the first in the
// queue, or the one that free slots are kept for.
func (p *pool) waitReason(least int, front bool) string {
	switch {
	case !front:
		return fmt.Sprintf("needs %s, is queued", slots(least))
	case least > p.withSuspected+p.quarantinedSlots:
		return fmt.Sprintf("needs %s, more than there are: %s", slots(least), p.capacity())
	}
	return fmt.Sprintf("needs %s, %s", slots(least), p.capacity())
}

// capacity describes what is free: 3 free of 6 on 2 nodes; node-b is draining. It gives points in
// time instead of durations, because the sentence is read long after it was written.
func (p *pool) capacity() string {
	if p.capacityText == "" {
		p.capacityText = p.describeCapacity()
	}
	return p.capacityText
}

func (p *pool) describeCapacity() string {
	text := fmt.Sprintf("%d free of %d on %s", len(p.free), p.size, english.Plural(p.nodeCount, "node"))
	if p.nodeCount == 0 {
		text = "no node takes work"
	}
	const most = 3
	var closed []string
	more := 0 // nodes and slots that are not listed
	add := func(n int, text string) {
		if len(closed) < most {
			closed = append(closed, text)
		} else {
			more += n
		}
	}
	excluded := map[string][]ident.NodeID{} // nodes by reason, which is often the same for all
	for _, id := range p.names {
		if n := p.nodes[id]; n.Gone == "" && !n.Draining && n.Excluded != "" {
			excluded[n.Excluded] = append(excluded[n.Excluded], id)
		}
	}
	for _, id := range p.names {
		switch n := p.nodes[id]; {
		case n.Gone != "":
		case n.Draining:
			add(1, string(id)+" is draining")
		case n.Excluded != "":
			if same := excluded[n.Excluded]; same[0] == id {
				add(len(same), names(same)+" may not be used: "+n.Excluded)
			}
		case n.Quarantine != nil:
			add(1, fmt.Sprintf("%s is quarantined until %s: %s", id, clock(*n.Quarantine), n.Quarantine.Reason))
		case n.Suspected:
			add(1, string(id)+" is suspected")
		default:
			for _, b := range n.QuarantinedSlots {
				if int(b.Slot) < n.Slots {
					add(1, fmt.Sprintf("%s is quarantined until %s: %s", ident.Place{Node: id, Slot: b.Slot}, clock(b.Quarantine), b.Reason))
				}
			}
		}
	}
	switch {
	case more == 1:
		closed = append(closed, "1 more is not usable")
	case more > 1:
		closed = append(closed, fmt.Sprintf("%d more are not usable", more))
	}
	return strings.Join(append([]string{text}, closed...), "; ")
}

// names formats a list of nodes: a, b, c and 4 more.
func names(all []ident.NodeID) string {
	const most = 3
	text := string(all[0])
	for i, id := range all[1:] {
		switch {
		case i+1 == most:
			return fmt.Sprintf("%s and %d more", text, len(all)-most)
		case i+2 == len(all):
			text += " and " + string(id)
		default:
			text += ", " + string(id)
		}
	}
	return text
}

func clock(q events.Quarantine) string { return q.Until.UTC().Format("2 Jan 15:04:05 UTC") }

func slots(n int) string { return english.Plural(n, "slot") }
