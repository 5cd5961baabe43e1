package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/english"
)

// isQueued ends the reason of a job that others are before.
const isQueued = ", is queued"

// shortfall says why a placed job has fewer slots than it wants, or "" if it has all. What it has
// may be no multiple that it trains with, and so may what is free: the multiple explains both.
func (p *pool) shortfall(j *Job, row events.PlacementView) string {
	w, has, asks := row.Workers, len(row.Places), p.request(j.GPU)
	switch {
	case has >= w.Max:
		return ""
	case has < w.Min:
		return fmt.Sprintf("has %d of at least %s%s: %s", has, english.Plural(w.Min, "worker"), asks.gpu.With(), p.capacity(asks))
	}
	text := fmt.Sprintf("has %d of up to %s%s", has, english.Plural(w.Max, "worker"), asks.gpu.With())
	if j.MultipleOf > 1 {
		text += fmt.Sprintf(", and trains with a multiple of %d", j.MultipleOf)
	}
	if _, others := p.heldFrom(asks, j.ID); len(others) > 0 && p.available(asks) == 0 {
		return text + ": free slots are kept for " + waiting(others)
	}
	return text + ": " + p.capacity(asks) + p.kept(asks, j.ID)
}

// waitReason returns a sentence that says why a job is not placed. front: it is the first in the
// queue, or of those that ask for the same GPUs, or one that free slots are kept for.
func (p *pool) waitReason(id ident.JobID, asks *request, least int, front bool) string {
	text := "needs " + slots(least) + asks.gpu.With()
	switch {
	case !front:
		return text + isQueued
	case least > p.most(asks):
		return text + ", more than there are: " + p.capacity(asks)
	case asks.gpu != nil:
		return text + ": " + p.capacity(asks) + p.kept(asks, id)
	}
	return text + ", " + p.capacity(asks) + p.kept(asks, id)
}

// kept says how many of the free slots are kept for other jobs that wait.
func (p *pool) kept(r *request, id ident.JobID) string {
	switch n, others := p.heldFrom(r, id); n {
	case 0:
		return ""
	case 1:
		return "; 1 free slot is kept for " + waiting(others)
	default:
		return fmt.Sprintf("; %d free slots are kept for %s", n, waiting(others))
	}
}

func waiting(jobs []ident.JobID) string {
	if len(jobs) == 1 {
		return string(jobs[0]) + ", which waits"
	}
	return names(jobs) + ", which wait"
}

// capacity describes what is free: 3 free of 6 on 2 nodes; node-b is draining. It gives points in
// time instead of durations, because the sentence is read long after it was written.
func (p *pool) capacity(r *request) string {
	if r.capacityText == "" {
		r.capacityText = p.describeCapacity(r)
	}
	return r.capacityText
}

func (p *pool) describeCapacity(r *request) string {
	nodes := 0 // that have slots which will do
	for _, id := range p.names {
		if n := p.nodes[id]; n.schedulable() && p.fitsNode(r, n) {
			nodes++
		}
	}
	size := r.total(p.size)
	text := fmt.Sprintf("%d free of %d on %s", r.total(p.freeOf), size, english.Plural(nodes, "node"))
	switch all := p.request(nil).total(p.size); {
	case p.nodeCount == 0:
		text = "no node takes work"
	case r.gpu != nil && size == 0:
		text = fmt.Sprintf("none of %d on %s has one (%s)", all, english.Plural(p.nodeCount, "node"), p.inventory())
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
		if n := p.nodes[id]; n.Gone == "" && !n.Draining && n.Excluded != "" && p.fitsNode(r, n) {
			excluded[n.Excluded] = append(excluded[n.Excluded], id)
		}
	}
	for _, id := range p.names {
		switch n := p.nodes[id]; {
		case n.Gone != "", !p.fitsNode(r, n):
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
				if int(b.Slot) < n.Slots && r.fits[p.kindAt(n, b.Slot)] {
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

// inventory says which GPUs the slots of usable nodes have: 8 NVIDIA A100-SXM4-40GB with 40960MiB,
// 4 without a GPU of their own.
func (p *pool) inventory() string {
	const most = 4
	var words []string
	more := 0
	for i, k := range p.kinds {
		what := cmp.Or(k.model, "of an unknown model")
		if k.memory > 0 {
			what += fmt.Sprintf(" with %dMiB", k.memory)
		}
		switch {
		case p.size[i] == 0 || i == noGPU:
		case len(words) < most:
			words = append(words, fmt.Sprintf("%d %s", p.size[i], what))
		default:
			more += p.size[i]
		}
	}
	if more > 0 {
		words = append(words, fmt.Sprintf("%d others", more))
	}
	if n := p.size[noGPU]; n > 0 {
		words = append(words, fmt.Sprintf("%d without a GPU of their own", n))
	}
	return strings.Join(words, ", ")
}

// names formats a list of nodes or jobs: a, b, c and 4 more.
func names[ID ~string](all []ID) string {
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
