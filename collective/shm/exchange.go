package shm

import (
	"encoding/binary"
	"runtime"
)

// Broadcast copies root's buffer to all members.
func (g *Group) Broadcast(descriptor [DescriptorBytes]byte, buf []byte, root int) error {
	defer runtime.KeepAlive(buf) // see enter
	k := g.place(buf)
	g.round++
	if k.small() && g.rank == root {
		copy(g.small(root, k), buf)
	}
	if err := g.enter(&descriptor, k, buf); err != nil {
		return err
	}
	if k.small() {
		if g.rank == root {
			return nil
		}
		return g.copyAll(root, 0, buf)
	}
	// Block root is all of the buffer, and the others are empty.
	clear(g.bounds[:root+1])
	for q := root; q < g.size; q++ {
		g.bounds[q+1] = len(buf)
	}
	src := buf
	if g.rank != root {
		src = nil
	}
	return g.exchange(descriptor, src, buf, g.zeros, g.bounds, len(buf), g.headers[root].location == locPrivate)
}

// copyBytes is the most that is copied between two checks for an abort.
const copyBytes = 4 << 20

// copyAll copies a part of a member's data to dst, and stops at an abort.
func (g *Group) copyAll(q, at int, dst []byte) error {
	for lo := 0; lo < len(dst); lo += copyBytes {
		if g.aborted.Load() {
			return ErrAborted
		}
		if err := g.copyFrom(q, at+lo, dst[lo:min(lo+copyBytes, len(dst))]); err != nil {
			return err
		}
	}
	return nil
}

// Allgather copies block i of data, [offsets[i], offsets[i+1]), from member i to all members.
func (g *Group) Allgather(descriptor [DescriptorBytes]byte, data []byte, offsets []int) error {
	defer runtime.KeepAlive(data) // see enter
	// All members must choose the same kind of location, so it depends on the longest block.
	longest := 0
	for q := range g.size {
		longest = max(longest, offsets[q+1]-offsets[q])
	}
	mine := data[offsets[g.rank]:offsets[g.rank+1]]
	k := locInline
	switch {
	case longest > SmallBytes:
		if k = g.place(mine); k.small() {
			k = locPrivate
		}
	case longest > inlineBytes:
		k = locSlot
	}
	g.round++
	if k.small() {
		copy(g.small(g.rank, k), mine)
	}
	if err := g.enter(&descriptor, k, mine); err != nil {
		return err
	}
	if !k.small() {
		return g.exchange(descriptor, mine, data, g.zeros, offsets, longest, g.anyPrivate())
	}
	for q := range g.size {
		if q != g.rank {
			if err := g.copyAll(q, 0, data[offsets[q]:offsets[q+1]]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Alltoall copies block q of src, [out[q], out[q+1]), to member q, which receives it as block
// g.Rank() of its dst. The caller copies its own block.
func (g *Group) Alltoall(descriptor [DescriptorBytes]byte, src, dst []byte, out, in []int) error {
	defer runtime.KeepAlive(src) // see enter
	// Lengths may differ between members, so each member publishes its offsets first.
	g.round++
	table := g.stagingBuffer(g.rank)
	for i, o := range out {
		binary.NativeEndian.PutUint64(table[8*i:], uint64(o))
	}
	k := locPrivate
	if g.arena.holds(src) {
		k = locArena
	}
	if err := g.enter(&descriptor, k, src); err != nil {
		return err
	}
	from := make([]int, g.size) // where this member's block is in another one's data
	longest := 0
	for q := range g.size {
		theirs := g.stagingBuffer(q)
		from[q] = int(binary.NativeEndian.Uint64(theirs[8*g.rank:]))
		longest = max(longest, int(binary.NativeEndian.Uint64(theirs[8*g.size:])))
		if n := int(binary.NativeEndian.Uint64(theirs[8*(g.rank+1):])) - from[q]; n != in[q+1]-in[q] {
			return &MismatchError{Member: q, Descriptor: descriptor, Sent: n, Expected: in[q+1] - in[q]}
		}
	}
	return g.exchange(descriptor, src, dst, from, in, longest, g.anyPrivate())
}

// exchange copies block q of dst, [in[q], in[q+1]), from the data of member q, src there, from its
// byte from[q] on. longest is the length of the longest data. private says whether that of some
// member is in memory of its own, which is staged if the others cannot read it.
func (g *Group) exchange(descriptor [DescriptorBytes]byte, src, dst []byte, from, in []int, longest int, private bool) error {
	if private && !g.vm {
		return g.exchangeStaged(descriptor, src, dst, from, in, longest)
	}
	for d := 1; d < g.size; d++ {
		q := (g.rank + d) % g.size
		if err := g.copyAll(q, from[q], dst[in[q]:in[q+1]]); err != nil {
			return err
		}
	}
	return g.leave()
}

// exchangeStaged shows all data of all members to all, one staging buffer at a time. Each member
// copies its own blocks.
func (g *Group) exchangeStaged(descriptor [DescriptorBytes]byte, src, dst []byte, from, in []int, longest int) error {
	for lo := 0; lo < longest; lo += stagingBytes {
		g.round++
		copy(g.stagingBuffer(g.rank), src[min(lo, len(src)):])
		if err := g.enter(&descriptor, locStaging, nil); err != nil {
			return err
		}
		for q := range g.size {
			if q == g.rank {
				continue
			}
			begin, end := max(lo, from[q]), min(lo+stagingBytes, from[q]+in[q+1]-in[q])
			if begin < end {
				at := in[q] + begin - from[q]
				copy(dst[at:at+end-begin], g.stagingBuffer(q)[begin-lo:end-lo])
			}
		}
	}
	return nil
}

// Barrier returns when all members have called it.
func (g *Group) Barrier(descriptor [DescriptorBytes]byte) error {
	g.round++
	return g.enter(&descriptor, locInline, nil)
}
