package plan

import (
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
)

// describedRequests is for how many different GPUs that jobs wait for the view says what there is.
const describedRequests = 16

// updateQueue updates the view of waiting jobs. Only the first one, the first one of those that ask
// for the same GPUs, and those that slots are kept for give the figures that keep them waiting:
// those may change with every job that ends. The others are marked as queued once, so that the cost
// of a job does not grow with the length of the queue.
func (t *transition) updateQueue(p *pool) {
	v, none := &t.s.View, p.request(nil)
	v.Capacity, v.MaxSlots, v.Head = p.capacity(none), p.most(none), p.headOf(none)
	v.Queue, v.GPUQueues = make([]ident.JobID, 0, len(t.s.Queue)-len(v.Jobs)/2), nil
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if j.Placed || !j.Submitted {
			continue
		}
		v.Queue = append(v.Queue, j.ID)
		asks, row := p.request(j.GPU), v.Jobs[j.ID]
		front := len(v.Queue) == 1 || p.holds(j.ID)
		if j.GPU != nil && !asks.described && len(v.GPUQueues) < describedRequests {
			front, asks.described = true, true
			v.GPUQueues = append(v.GPUQueues, events.GPUQueue{GPU: *j.GPU, Head: p.headOf(asks), Capacity: p.capacity(asks), MaxSlots: p.most(asks)})
		}
		if !front && strings.HasSuffix(row.Waiting, isQueued) && !t.s.touched[j.ID] {
			continue
		}
		waiting := p.waitReason(j.ID, asks, row.Workers.Min, front)
		if waiting == row.Waiting {
			continue
		}
		row.Waiting = waiting
		v.Jobs[j.ID] = row
		t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Body: events.PlacementWaiting{
			Job: j.ID, Reason: waiting, Need: row.Workers.Min, Free: asks.total(p.freeOf),
		}})
	}
}
