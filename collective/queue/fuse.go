package queue

import (
	"context"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// fusion is what allreduces must have in common to be fused.
type fusion struct {
	dtype kernel.Type
	op    collective.Op
	wire  kernel.Type // zero = that of the elements
}

// fuseBelow is the size in bytes from which on fusing does not pay: the copy costs more than a
// separate operation.
const fuseBelow = 1 << 20

func (r *request) fusion() (f fusion, ok bool) {
	s := r.spec
	return fusion{dtype: s.Type, op: s.Op, wire: s.Wire}, s.Method == Allreduce && len(r.tensor.Data) < fuseBelow
}

// fuseGroups divides requests, in their order, into groups of one kind and of at most threshold
// bytes. What cannot be fused is a group of its own. The result depends only on the arguments, so
// that all ranks get the same.
func fuseGroups(ready []*request, threshold int) [][]*request {
	var groups [][]*request
	open := map[fusion]int{} // the group that can take more
	size := map[int]int{}
	for _, r := range ready {
		n := len(r.tensor.Data)
		f, packable := r.fusion()
		if i, ok := open[f]; ok && packable && size[i]+n <= threshold {
			groups[i] = append(groups[i], r)
			size[i] += n
			continue
		}
		groups = append(groups, []*request{r})
		if packable && n < threshold {
			open[f], size[len(groups)-1] = len(groups)-1, n
		}
	}
	return groups
}

func (q *Queue) executeFused(ctx context.Context, group []*request) error {
	size := 0
	for _, r := range group {
		size += len(r.tensor.Data)
	}
	if size > len(q.buffer) {
		// As much as will ever be needed, if it comes near that.
		q.buffer = make([]byte, max(size, min(2*size, q.opt.ThresholdBytes)))
	}
	at := 0
	for _, r := range group {
		at += copy(q.buffer[at:], r.tensor.Data)
	}
	s := group[0].spec
	if err := q.allreduce(ctx, s, collective.Tensor{Type: s.Type, Data: q.buffer[:size]}); err != nil {
		return err
	}
	at = 0
	for _, r := range group {
		at += copy(r.tensor.Data, q.buffer[at:])
	}
	return nil
}
