package collective

import "context"

// The operations on slices, see the methods of Communicator of the same names.

// Allreduce is Communicator.Allreduce of a slice.
func Allreduce[T Number](ctx context.Context, c *Communicator, buf []T, op Op) error {
	return c.Allreduce(ctx, Of(buf), op)
}

// ReduceScatter is Communicator.ReduceScatter of a slice.
func ReduceScatter[T Number](ctx context.Context, c *Communicator, buf []T, op Op) error {
	return c.ReduceScatter(ctx, Of(buf), op)
}

// Reduce is Communicator.Reduce of a slice.
func Reduce[T Number](ctx context.Context, c *Communicator, buf []T, op Op, root int) error {
	return c.Reduce(ctx, Of(buf), op, root)
}

// Broadcast is Communicator.Broadcast of a slice.
func Broadcast[T Number](ctx context.Context, c *Communicator, buf []T, root int) error {
	return c.Broadcast(ctx, Of(buf), root)
}

// Allgather is Communicator.Allgather of slices.
func Allgather[T Number](ctx context.Context, c *Communicator, send, recv []T) error {
	return c.Allgather(ctx, Of(send), Of(recv))
}

// Alltoall is Communicator.Alltoall of slices.
func Alltoall[T Number](ctx context.Context, c *Communicator, send, recv []T, counts, from []int) error {
	return c.Alltoall(ctx, Of(send), Of(recv), counts, from)
}
