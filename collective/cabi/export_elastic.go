package main

// #include <stdint.h>
// #include <stdlib.h>
// #include "regroup.h"
import "C"

import (
	"slices"
	"unsafe"

	"github.com/regroup-io/regroup/elastic"
)

//export rgo_elastic_new
func rgo_elastic_new(options *C.char, out *C.uint64_t) C.int {
	return answer(returnHandle(out, func() (*training, error) { return newTraining(text(options)) }))
}

func withMemory(h C.uint64_t, data unsafe.Pointer, bytes C.int64_t, do func(t *training, p []byte) error) C.int {
	return with(h, func(t *training) error {
		p, err := memoryOf(data, int64(bytes), 1)
		if err != nil {
			return err
		}
		return do(t, p)
	})
}

// returnBytes gives the host a copy of what get returns. kind is for the error text.
func returnBytes(h C.uint64_t, kind string, out *unsafe.Pointer, bytes *C.int64_t, get func(*training) ([]byte, error)) C.int {
	return with(h, func(t *training) error {
		if out == nil || bytes == nil {
			return invalidf("nowhere to put the %s", kind)
		}
		b, err := get(t)
		if err != nil {
			return err
		}
		*out, *bytes = C.CBytes(b), C.int64_t(len(b))
		return nil
	})
}

//export rgo_elastic_tensor
func rgo_elastic_tensor(h C.uint64_t, name *C.char, data unsafe.Pointer, bytes C.int64_t) C.int {
	return withMemory(h, data, bytes, func(t *training, p []byte) error { return t.tensor(text(name), p) })
}

//export rgo_elastic_live
func rgo_elastic_live(h C.uint64_t, name *C.char) C.int {
	return with(h, func(t *training) error { return t.live(text(name), false) })
}

//export rgo_elastic_away
func rgo_elastic_away(h C.uint64_t, name *C.char) C.int {
	return with(h, func(t *training) error { return t.live(text(name), true) })
}

//export rgo_elastic_brought
func rgo_elastic_brought(h C.uint64_t, ok C.int32_t) C.int {
	return with(h, func(t *training) error { return t.brought(ok != 0) })
}

//export rgo_elastic_sharded
func rgo_elastic_sharded(h C.uint64_t, copies, parity C.int32_t) C.int {
	return with(h, func(t *training) error { return t.sharded(int(copies), int(parity)) })
}

//export rgo_elastic_shard
func rgo_elastic_shard(h C.uint64_t, in *C.rg_shard) C.int {
	return with(h, func(t *training) error {
		if in == nil || uint64(in.size) < uint64(unsafe.Offsetof(in.unchanged)) {
			return invalidf("no shard, or its size is not set")
		}
		unchanged := uint64(in.size) > uint64(unsafe.Offsetof(in.unchanged)) && in.unchanged != 0
		if in.dims < 0 || in.dims > 0 && (in.shape == nil || in.offset == nil || in.extent == nil) {
			return invalidf("a shard of %d dimensions without shape, offset or extent", int(in.dims))
		}
		memory, err := memoryOf(in.memory, int64(in.bytes), 1)
		if err != nil {
			return err
		}
		return t.shard(elastic.Shard{
			Name: text(in.name), Type: text(in._type), Width: int(in.width), Memory: memory,
			Shape: dimensions(in.shape, in.dims), Offset: dimensions(in.offset, in.dims), Size: dimensions(in.extent, in.dims),
			Unchanged: unchanged,
		})
	})
}

func dimensions(list *C.int64_t, n C.int32_t) []int {
	all := make([]int, n)
	for i, v := range unsafe.Slice((*int64)(list), int(n)) {
		all[i] = int(v)
	}
	return all
}

//export rgo_elastic_object
func rgo_elastic_object(h C.uint64_t, name *C.char, data unsafe.Pointer, bytes C.int64_t) C.int {
	return withMemory(h, data, bytes, func(t *training, p []byte) error { return t.set(text(name), p) })
}

//export rgo_elastic_object_get
func rgo_elastic_object_get(h C.uint64_t, name *C.char, out *unsafe.Pointer, bytes *C.int64_t) C.int {
	return returnBytes(h, "object", out, bytes, func(t *training) ([]byte, error) { return t.get(text(name)) })
}

//export rgo_elastic_data
func rgo_elastic_data(h, samples, seed C.uint64_t, recording C.int32_t) C.int {
	return with(h, func(t *training) error { return t.data(uint64(samples), uint64(seed), recording != 0) })
}

//export rgo_elastic_record
func rgo_elastic_record(h, epoch C.uint64_t, indices *C.int64_t, n C.int64_t) C.int {
	return with(h, func(t *training) error {
		if n < 0 || indices == nil && n > 0 {
			return invalidf("%d samples", int64(n))
		}
		return t.record(uint64(epoch), unsafe.Slice((*int64)(indices), int(n)))
	})
}

//export rgo_elastic_record_for
func rgo_elastic_record_for(h, epoch C.uint64_t, indices *C.int64_t, n C.int64_t) C.int {
	return with(h, func(t *training) error {
		if n < 0 || indices == nil && n > 0 {
			return invalidf("%d samples", int64(n))
		}
		return t.recordFor(uint64(epoch), unsafe.Slice((*int64)(indices), int(n)))
	})
}

//export rgo_elastic_prologue_add
func rgo_elastic_prologue_add(h C.uint64_t, data unsafe.Pointer, bytes C.int64_t) C.int {
	return withMemory(h, data, bytes, func(t *training, p []byte) error { return t.prologue.Add(p) })
}

//export rgo_elastic_prologue_get
func rgo_elastic_prologue_get(h C.uint64_t, index C.int64_t, out *unsafe.Pointer, bytes *C.int64_t) C.int {
	return returnBytes(h, "entry", out, bytes, func(t *training) ([]byte, error) {
		b, there := t.prologue.At(int(index))
		if !there {
			return nil, errNoEntry
		}
		return b, nil
	})
}

//export rgo_elastic_start
func rgo_elastic_start(h C.uint64_t) C.int {
	return with(h, (*training).start)
}

//export rgo_elastic_next
func rgo_elastic_next(h C.uint64_t, within C.int64_t, out *C.rg_session) C.int {
	return with(h, func(t *training) error {
		if out == nil || uint64(out.size) < uint64(unsafe.Offsetof(out.stage)) {
			return invalidf("nowhere to put the session, or its size is not set")
		}
		s, comm, err := t.next(milliseconds(int64(within)))
		if err != nil {
			return err
		}
		fillSession(out, s, comm)
		return nil
	})
}

func fillSession(out *C.rg_session, s *elastic.Session, comm uint64) {
	out.generation, out.comm = C.uint64_t(s.Generation), C.rg_comm(comm)
	if out.step = 0; s.Stage == elastic.Training || s.Stage == elastic.Arranging {
		out.step = C.uint64_t(s.Step())
	}
	out.rank, out.world = C.int32_t(s.Rank), C.int32_t(s.World)
	out.local_rank, out.local_size = C.int32_t(s.LocalRank), C.int32_t(s.LocalSize)
	out.cross_rank, out.cross_size = C.int32_t(s.CrossRank), C.int32_t(s.CrossSize)
	// The rest is for hosts that know of it.
	if uint64(out.size) >= uint64(unsafe.Offsetof(out.traceparent)) {
		out.stage, out.reserved = C.int32_t(s.Stage), 0
	}
	if uint64(out.size) >= uint64(unsafe.Sizeof(*out)) {
		fillText(out.traceparent[:], s.Traceparent)
	}
}

func boolean(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

// fillText copies a text with its final zero. One that is too long becomes empty.
func fillText(to []C.char, s string) {
	clear(to)
	if len(s) >= len(to) {
		return
	}
	for i := range len(s) {
		to[i] = C.char(s[i])
	}
}

//export rgo_elastic_leave
func rgo_elastic_leave(h C.uint64_t, how C.int32_t, why *C.char) C.int {
	return with(h, func(t *training) error { return t.leave(status(how), text(why)) })
}

//export rgo_elastic_consume
func rgo_elastic_consume(h C.uint64_t, total C.int64_t, indices *C.int64_t, n C.int64_t) C.int {
	return with(h, func(t *training) error {
		if total < 0 || n < 0 || n > total || indices == nil && n > 0 {
			return invalidf("%d of %d samples", int64(n), int64(total))
		}
		return t.consume(int64(total), unsafe.Slice((*int64)(indices), int(n)))
	})
}

//export rgo_elastic_stop
func rgo_elastic_stop(h C.uint64_t) C.int {
	return with(h, func(t *training) error {
		t.stopping.Store(true)
		return nil
	})
}

//export rgo_elastic_check_updates
func rgo_elastic_check_updates(h C.uint64_t) C.int {
	return with(h, (*training).checkUpdates)
}

//export rgo_elastic_commit
func rgo_elastic_commit(h C.uint64_t) C.int {
	return with(h, (*training).commit)
}

//export rgo_elastic_commit_live
func rgo_elastic_commit_live(h C.uint64_t) C.int {
	return with(h, (*training).commitLive)
}

//export rgo_elastic_agree
func rgo_elastic_agree(h C.uint64_t, live C.int32_t, out *C.int32_t) C.int {
	return with(h, func(t *training) error {
		if out == nil {
			return invalidf("nowhere to put the answer")
		}
		copies, err := t.agree(live != 0)
		*out = boolean(copies)
		return err
	})
}

//export rgo_elastic_ballot
func rgo_elastic_ballot(h C.uint64_t, out *C.int64_t) C.int {
	return with(h, func(t *training) error {
		if out == nil {
			return invalidf("nowhere to put the values")
		}
		return t.ballot(unsafe.Slice((*int64)(out), C.RG_BALLOT))
	})
}

//export rgo_elastic_agreed
func rgo_elastic_agreed(h C.uint64_t, greatest *C.int64_t) C.int {
	return with(h, func(t *training) error {
		if greatest == nil {
			return invalidf("no values")
		}
		return t.agreed(slices.Clone(unsafe.Slice((*int64)(greatest), C.RG_BALLOT)))
	})
}

//export rgo_elastic_alike
func rgo_elastic_alike(h, hash C.uint64_t) C.int {
	return with(h, func(t *training) error { return t.alike(uint64(hash)) })
}

//export rgo_elastic_changed
func rgo_elastic_changed(h C.uint64_t) C.int {
	return with(h, (*training).changed)
}

//export rgo_elastic_withdraw
func rgo_elastic_withdraw(h C.uint64_t) C.int {
	return with(h, (*training).withdraw)
}

//export rgo_elastic_copy_next
func rgo_elastic_copy_next(h C.uint64_t) C.int {
	return with(h, (*training).copyNext)
}

//export rgo_elastic_hold
func rgo_elastic_hold(h C.uint64_t, out *C.int32_t) C.int {
	return with(h, func(t *training) error {
		if out == nil {
			return invalidf("nowhere to put the answer")
		}
		held, err := t.hold()
		*out = boolean(held)
		return err
	})
}

//export rgo_elastic_verify
func rgo_elastic_verify(h C.uint64_t) C.int {
	return with(h, (*training).verify)
}

//export rgo_elastic_distrust
func rgo_elastic_distrust(h C.uint64_t, step *C.int64_t) C.int {
	return with(h, func(t *training) error {
		if step == nil {
			return invalidf("nowhere to put the step")
		}
		n, back, err := t.distrust()
		*step = -1
		if back {
			*step = C.int64_t(n)
		}
		return err
	})
}

//export rgo_elastic_unchanged
func rgo_elastic_unchanged(h C.uint64_t, out *C.int32_t) C.int {
	return with(h, func(t *training) error {
		if out == nil {
			return invalidf("nowhere to put the answer")
		}
		same, err := t.unchanged()
		*out = boolean(same)
		return err
	})
}

//export rgo_elastic_commit_alone
func rgo_elastic_commit_alone(h C.uint64_t) C.int {
	return with(h, (*training).commitAlone)
}

//export rgo_elastic_restore
func rgo_elastic_restore(h C.uint64_t) C.int {
	return with(h, (*training).restore)
}

//export rgo_elastic_report
func rgo_elastic_report(h C.uint64_t, metrics *C.char) C.int {
	return with(h, func(t *training) error { return t.report(text(metrics)) })
}

//export rgo_elastic_ledger
func rgo_elastic_ledger(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withText(h, buffer, size, (*training).ledger)
}

//export rgo_elastic_close
func rgo_elastic_close(h C.uint64_t) C.int {
	return closeHandle(h, func(t *training) error {
		t.close()
		return nil
	})
}

//export rgo_permutation
func rgo_permutation(samples, seed, epoch, position C.uint64_t, indices *C.int64_t, n C.int64_t) C.int {
	if n < 0 || indices == nil && n > 0 {
		return answer(invalidf("nowhere to put %d indices", int64(n)))
	}
	return answer(order(uint64(samples), uint64(seed), uint64(epoch), uint64(position), unsafe.Slice((*int64)(indices), int(n))))
}
