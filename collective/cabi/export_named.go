package main

// #include <stdint.h>
import "C"

import (
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/queue"
)

//export rgo_named_options
func rgo_named_options(h C.uint64_t, options *C.char) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		return decode(text(options), &c.named.options)
	})
}

// withNamedQueue calls do with a communicator or a subgroup of one.
func withNamedQueue(h C.uint64_t, do func(*communicator) error) C.int {
	if s, there := subgroups.get(uint64(h)); there {
		return answer(do(s))
	}
	return withHandle(&communicators, "communicator", h, do)
}

func startNamed(h C.uint64_t, name *C.char, started *C.uint64_t, begin func(c *communicator, q *queue.Queue, name string) *queue.Handle) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		if name == nil {
			return invalidf("an operation by name needs a name")
		}
		return c.submit((*uint64)(started), func(q *queue.Queue) *queue.Handle { return begin(c, q, text(name)) })
	})
}

//export rgo_named_allreduce
func rgo_named_allreduce(h C.uint64_t, name, detail *C.char, wire C.int32_t, data unsafe.Pointer, count C.int64_t,
	dtype, op C.int32_t, started *C.uint64_t,
) C.int {
	t, o, err := reductionArgs(data, int64(count), int32(dtype), int32(op))
	if err != nil {
		return answer(err)
	}
	w, err := wireOf(int32(wire))
	if err != nil {
		return answer(err)
	}
	return startNamed(h, name, started, func(_ *communicator, q *queue.Queue, name string) *queue.Handle {
		return q.Allreduce(name, text(detail), t, o, w)
	})
}

//export rgo_named_broadcast
func rgo_named_broadcast(h C.uint64_t, name, detail *C.char, data unsafe.Pointer, count C.int64_t, dtype, root C.int32_t,
	started *C.uint64_t,
) C.int {
	t, err := tensorOf(data, int64(count), int32(dtype))
	if err != nil {
		return answer(err)
	}
	return startNamed(h, name, started, func(_ *communicator, q *queue.Queue, name string) *queue.Handle {
		return q.Broadcast(name, text(detail), t, int(root))
	})
}

// rowsOf is a tensor of rows with row elements each.
func rowsOf(data unsafe.Pointer, rows, row int64, dtype int32) (collective.Tensor, error) {
	const most = 1 << 48 // elements, far more than memory has
	if rows < 0 || row < 0 || rows > most || row > most || rows > 0 && row > most/rows {
		return collective.Tensor{}, invalidf("%d rows of %d elements", rows, row)
	}
	return tensorOf(data, rows*row, dtype)
}

//export rgo_named_allgather
func rgo_named_allgather(h C.uint64_t, name, detail *C.char, data unsafe.Pointer, rows, row C.int64_t, dtype C.int32_t,
	started *C.uint64_t,
) C.int {
	t, err := rowsOf(data, int64(rows), int64(row), int32(dtype))
	if err == nil {
		err = requireRequest((*uint64)(started))
	}
	if err != nil {
		return answer(err)
	}
	return startNamed(h, name, started, func(_ *communicator, q *queue.Queue, name string) *queue.Handle {
		return q.Allgather(name, text(detail), t, int(rows), int(row))
	})
}

//export rgo_named_alltoall
func rgo_named_alltoall(h C.uint64_t, name, detail *C.char, data unsafe.Pointer, splits *C.int64_t, row C.int64_t,
	dtype C.int32_t, started *C.uint64_t,
) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		if splits == nil || name == nil {
			return invalidf("an alltoall by name needs a name and its splits")
		}
		if err := requireRequest((*uint64)(started)); err != nil {
			return err
		}
		n, rows, err := blocks(splits, 0, c.size())
		if err != nil {
			return err
		}
		t, err := rowsOf(data, rows, int64(row), int32(dtype))
		if err != nil {
			return err
		}
		return c.submit((*uint64)(started), func(q *queue.Queue) *queue.Handle {
			return q.Alltoall(text(name), text(detail), t, n, int(row))
		})
	})
}

//export rgo_named_reduce_scatter
func rgo_named_reduce_scatter(h C.uint64_t, name, detail *C.char, data unsafe.Pointer, rows, row C.int64_t,
	dtype, op C.int32_t, started *C.uint64_t,
) C.int {
	t, err := rowsOf(data, int64(rows), int64(row), int32(dtype))
	if err != nil {
		return answer(err)
	}
	o, err := opOf(int32(op))
	if err != nil {
		return answer(err)
	}
	return startNamed(h, name, started, func(_ *communicator, q *queue.Queue, name string) *queue.Handle {
		return q.ReduceScatter(name, text(detail), t, int(row), o)
	})
}

//export rgo_named_barrier
func rgo_named_barrier(h C.uint64_t, name *C.char, started *C.uint64_t) C.int {
	return startNamed(h, name, started, func(_ *communicator, q *queue.Queue, name string) *queue.Handle {
		return q.Barrier(name)
	})
}

//export rgo_named_refuse
func rgo_named_refuse(h C.uint64_t, name, why *C.char) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		c.namedQueue().Refuse(text(name), text(why))
		return nil
	})
}

//export rgo_named_deadlocks
func rgo_named_deadlocks(h C.uint64_t, out *C.int64_t) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		if out == nil {
			return invalidf("nowhere to put the number")
		}
		*out = C.int64_t(c.namedQueue().Deadlocks())
		return nil
	})
}

//export rgo_join
func rgo_join(h C.uint64_t, started *C.uint64_t) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		if err := requireRequest((*uint64)(started)); err != nil {
			return err
		}
		return c.submit((*uint64)(started), (*queue.Queue).Join)
	})
}

//export rgo_wait_result
func rgo_wait_result(id C.uint64_t, within C.int64_t, program C.int, data *unsafe.Pointer, rows *C.int64_t) C.int {
	return withHandle(&requests, "request", id, func(r *request) error {
		if r.handle == nil || data == nil || rows == nil {
			return invalidf("request %d has no result, or there is nowhere to put it", uint64(id))
		}
		if err := r.waitOn(milliseconds(int64(within)), program != 0); err != nil {
			return err
		}
		result, counts := r.handle.Result()
		to := unsafe.Slice(rows, r.of.size())
		for i := range to {
			to[i] = 0
			if i < len(counts) {
				to[i] = C.int64_t(counts[i])
			}
		}
		if counts == nil { // a join
			to[0] = C.int64_t(r.of.callerRank(r.handle.Last()))
		}
		*data = unsafe.Pointer(unsafe.SliceData(result))
		return nil
	})
}

//export rgo_subset
func rgo_subset(h C.uint64_t, name *C.char, ranks *C.int32_t, length C.int32_t, out *C.uint64_t) C.int {
	return withHandle(&communicators, "communicator", h, func(c *communicator) error {
		if ranks == nil || length < 1 {
			return invalidf("a subset needs ranks")
		}
		all := make([]int, length)
		for i, r := range unsafe.Slice(ranks, int(length)) {
			all[i] = int(r)
		}
		return returnHandle(&subgroups, "subset", out, func() (*communicator, error) { return c.newSubgroup(text(name), all) })
	})
}

//export rgo_timeline_start
func rgo_timeline_start(h C.uint64_t, path *C.char, markCycles C.int32_t) C.int {
	return withNamedQueue(h, func(c *communicator) error {
		return c.named.events.start(text(path), markCycles != 0)
	})
}

//export rgo_timeline_stop
func rgo_timeline_stop(h C.uint64_t) C.int {
	return withNamedQueue(h, func(c *communicator) error { return c.named.events.stop() })
}
