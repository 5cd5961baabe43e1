package cluster

import (
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// Change is a command about a job or a node that exists, whose view is a V.
type Change[V any] struct {
	Entity  string
	Body    events.Body
	Answers func(events.Body) bool // of the facts that it has caused
	Holds   func(V) bool           // what it wants is so; nil = only a fact counts
}

// Is reports whether a body is of a type.
func Is[T events.Body](b events.Body) bool {
	_, ok := b.(T)
	return ok
}

// Scale changes the wanted number of workers.
func Scale(job ident.JobID, w spec.Workers) Change[events.JobView] {
	return Change[events.JobView]{
		string(job),
		events.JobScale{Job: job, Workers: w},
		Is[events.JobScaled],
		func(v events.JobView) bool { return v.Spec.Workers == w },
	}
}

// Stop ends a job: the registry has applied it when it is answered. The workers then get their
// signal and grace, or with now are killed.
func Stop(job ident.JobID, reason string, now bool) Change[events.JobView] {
	return Change[events.JobView]{
		string(job),
		events.JobStop{Job: job, Reason: reason, Now: now},
		func(b events.Body) bool { return Is[events.JobStopping](b) || Ended(b) },
		func(v events.JobView) bool {
			return v.State.Terminal() || (!now && v.State == events.JobStateStopping) || v.State == events.JobStateFinishing
		},
	}
}

// Ended reports whether a fact says that its job has ended.
func Ended(b events.Body) bool {
	_, ok := b.(events.JobEndFact)
	return ok
}

// Remove removes the record of a job that has ended.
func Remove(job ident.JobID) Change[events.JobView] {
	return Change[events.JobView]{string(job), events.JobRemove{Job: job}, Is[events.JobRemoved], func(v events.JobView) bool { return !Exists(v) }}
}

// Drain makes a node give up its work; undo: it accepts work again.
func Drain(node ident.NodeID, reason string, undo bool) Change[events.NodeView] {
	return ofNode(node, events.NodeDrain{Node: node, Reason: reason, Undo: undo}, func(v events.NodeView) bool { return v.Draining != undo })
}

// Quarantine keeps a node, or one of its slots, out for a time.
func Quarantine(q events.NodeQuarantine) Change[events.NodeView] { return ofNode(q.Node, q, nil) }

// Release ends the quarantine of a node and its slots, or of one slot.
func Release(r events.NodeRelease) Change[events.NodeView] {
	return ofNode(r.Node, r, func(v events.NodeView) bool { return !Quarantined(v, r.Slot) })
}

func ofNode(node ident.NodeID, b events.Body, holds func(events.NodeView) bool) Change[events.NodeView] {
	return Change[events.NodeView]{string(node), b, func(events.Body) bool { return true }, holds}
}

// Quarantined reports whether a slot of a node is in quarantine or, with nil, whether the node or
// any slot of it is.
func Quarantined(v events.NodeView, slot *ident.Slot) bool {
	if slot == nil {
		return v.Quarantine != nil || len(v.QuarantinedSlots) > 0
	}
	return slices.ContainsFunc(v.QuarantinedSlots, func(b events.QuarantinedSlot) bool { return b.Slot == *slot })
}
