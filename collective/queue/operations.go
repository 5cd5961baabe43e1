package queue

import (
	"context"
	"fmt"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// Allreduce submits an allreduce. Its elements are sent as wire if that is not zero (see
// Communicator.AllreduceAs). The tensor must not be touched until it is done. detail, here and
// below, must be equal on all ranks: the shape, for example.
func (q *Queue) Allreduce(name, detail string, t collective.Tensor, op collective.Op, wire kernel.Type) *Handle {
	s := Spec{Method: Allreduce, Type: t.Type, Op: op, Wire: wire, Count: t.Len(), Detail: detail}
	return q.submit(&request{
		name: name, spec: s, tensor: t,
		do: func(ctx context.Context) error { return q.allreduce(ctx, s, t) },
	})
}

// Broadcast submits a broadcast of root's tensor to those of all ranks.
func (q *Queue) Broadcast(name, detail string, t collective.Tensor, root int) *Handle {
	s := Spec{Method: Broadcast, Type: t.Type, Root: root, Count: t.Len(), Detail: detail}
	return q.submit(&request{name: name, spec: s, do: func(ctx context.Context) error {
		return q.comm.Broadcast(ctx, t, root)
	}})
}

// Allgather submits an all-gather of rows with row elements each. The number of rows may differ
// between ranks. See Handle.Result.
func (q *Queue) Allgather(name, detail string, t collective.Tensor, rows, row int) *Handle {
	s := Spec{Method: Allgather, Type: t.Type, Count: row, Detail: detail}
	r := &request{name: name, spec: s}
	r.do = func(ctx context.Context) error { return q.allgather(ctx, t, rows, row, r.handle) }
	return q.submit(r)
}

// Alltoall submits an exchange of rows with row elements each: splits[i] of this rank's rows, in
// order, go to rank i. See Handle.Result.
func (q *Queue) Alltoall(name, detail string, t collective.Tensor, splits []int, row int) *Handle {
	s := Spec{Method: Alltoall, Type: t.Type, Count: row, Detail: detail}
	r := &request{name: name, spec: s}
	r.do = func(ctx context.Context) error { return q.alltoall(ctx, t, splits, row, r.handle) }
	return q.submit(r)
}

// ReduceScatter submits a reduction of the ranks' rows, with row elements each, after which each
// rank has its share of the result in place: the first ranks have one row more than the others if
// the rows do not divide evenly. The rest of the tensor is undefined.
func (q *Queue) ReduceScatter(name, detail string, t collective.Tensor, row int, op collective.Op) *Handle {
	s := Spec{Method: ReduceScatter, Type: t.Type, Op: op, Count: t.Len(), Detail: fmt.Sprintf("rows of %d %s", row, detail)}
	return q.submit(&request{name: name, spec: s, do: func(ctx context.Context) error {
		if row == 0 || t.Len()/row%q.comm.World() != 0 { // segments would cut through rows
			return q.comm.Allreduce(ctx, t, op)
		}
		return q.comm.ReduceScatter(ctx, t, op)
	}})
}

// Barrier submits a barrier.
func (q *Queue) Barrier(name string) *Handle {
	return q.submit(&request{name: name, spec: Spec{Method: Barrier}, do: q.barrier})
}

// Do submits any other operation: do executes it on the communicator. kind must be equal on all
// ranks.
func (q *Queue) Do(name, kind string, do func(context.Context, *collective.Communicator) error) *Handle {
	return q.submit(&request{name: name, spec: Spec{Detail: kind}, do: func(ctx context.Context) error {
		return do(ctx, q.comm)
	}})
}

// Refuse says that this rank's program has called an operation of this name with wrong arguments:
// the ranks that wait for it get a *MismatchError with the reason instead of waiting. A later
// operation of the name replaces it if no negotiation has included it yet.
func (q *Queue) Refuse(name, reason string) *Handle {
	return q.submit(&request{
		name: name, spec: Spec{Detail: "an error: " + reason}, refused: true,
		do: func(context.Context) error { return nil },
	})
}

// Join says that this rank submits nothing more until all ranks have joined. Until then it takes
// part in the others' allreduces with identity elements, and their other operations fail with a
// *JoinedError. It ends when all ranks have joined. See Handle.Last.
func (q *Queue) Join() *Handle {
	h := newHandle(q)
	q.mu.Lock()
	failed := q.failed
	switch {
	case failed != nil:
	case q.join != nil:
		failed = fmt.Errorf("join: %w", ErrPending)
	default:
		q.join = h
		q.wakeUp()
	}
	q.mu.Unlock()
	if failed != nil {
		h.end(failed)
	}
	return h
}

func (q *Queue) barrier(ctx context.Context) error { return q.comm.Barrier(ctx) }

func (q *Queue) allreduce(ctx context.Context, s Spec, t collective.Tensor) error {
	if s.Wire != 0 {
		return q.comm.AllreduceAs(ctx, s.Wire, t, s.Op)
	}
	return q.comm.Allreduce(ctx, t, s.Op)
}

func (q *Queue) allgather(ctx context.Context, t collective.Tensor, rows, row int, h *Handle) error {
	c := q.comm
	all := make([]int64, c.World())
	if err := collective.Allgather(ctx, c, []int64{int64(rows)}, all); err != nil {
		return err
	}
	total, equal := 0, true
	h.rows = make([]int, c.World())
	for i, n := range all {
		h.rows[i] = int(n)
		total += int(n) * row * t.Type.Size()
		equal = equal && n == all[0]
	}
	// Memory that runs out on one rank must not leave the others waiting in an operation.
	var err error
	h.result, err = q.opt.Result(total)
	if err := q.together(ctx, err); err != nil {
		return err
	}
	if equal {
		return c.Allgather(ctx, t, collective.Tensor{Type: t.Type, Data: h.result})
	}
	blobs, err := c.AllgatherBlobs(ctx, t.Data)
	at := 0
	for _, b := range blobs {
		at += copy(h.result[at:], b)
	}
	return err
}

func (q *Queue) alltoall(ctx context.Context, t collective.Tensor, splits []int, row int, h *Handle) error {
	c := q.comm
	n, me := c.World(), c.Rank()
	mine, all := make([]int64, n), make([]int64, n*n)
	for i, rows := range splits {
		mine[i] = int64(rows)
	}
	if err := collective.Allgather(ctx, c, mine, all); err != nil {
		return err
	}
	h.rows = make([]int, n)
	out, in, total := make([]int, n), make([]int, n), 0
	for i := range n {
		h.rows[i] = int(all[i*n+me])
		out[i], in[i] = splits[i]*row, h.rows[i]*row
		total += in[i]
	}
	var err error
	h.result, err = q.opt.Result(total * t.Type.Size())
	if err := q.together(ctx, err); err != nil {
		return err
	}
	return c.Alltoall(ctx, t, collective.Tensor{Type: t.Type, Data: h.result}, out, in)
}

// together returns an error on all ranks if one of them has one.
func (q *Queue) together(ctx context.Context, mine error) error {
	ok := []byte{1}
	if mine != nil {
		ok[0] = 0
	}
	if err := collective.Allreduce(ctx, q.comm, ok, collective.Min); err != nil {
		return err
	}
	if mine == nil && ok[0] == 0 {
		return fmt.Errorf("%w: another rank has no memory for the result", collective.ErrInvalid)
	}
	return mine
}
