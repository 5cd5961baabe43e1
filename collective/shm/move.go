package shm

import "encoding/binary"

// Broadcast copies root's buffer to all members.
func (g *Group) Broadcast(ticket [TicketBytes]byte, buf []byte, root int) error {
	k := g.place(buf)
	g.round++
	if k.small() && g.rank == root {
		copy(g.small(root, k), buf)
	}
	if err := g.enter(&ticket, k, buf); err != nil {
		return err
	}
	if !k.small() && g.notes[root].kind == inPrivate && !g.vm {
		return g.windows(ticket, buf, root)
	}
	if g.rank != root {
		if err := g.fetchAll(root, 0, buf); err != nil {
			return err
		}
	}
	if k.small() {
		return nil
	}
	return g.leave()
}

// windows is a broadcast of data that nobody can read.
func (g *Group) windows(ticket [TicketBytes]byte, buf []byte, root int) error {
	for len(buf) > 0 {
		part := buf[:min(len(buf), stageBytes)]
		g.round++
		if g.rank == root {
			copy(g.window(root), part)
		}
		if err := g.enter(&ticket, inWindow, nil); err != nil {
			return err
		}
		if g.rank != root {
			copy(part, g.window(root))
		}
		buf = buf[len(part):]
	}
	return nil
}

// fetchBytes is what is copied at a time, so that an abort is noticed soon.
const fetchBytes = 4 << 20

// fetchAll copies a part of a member's data to dst.
func (g *Group) fetchAll(q, at int, dst []byte) error {
	for lo := 0; lo < len(dst); lo += fetchBytes {
		if g.aborted.Load() {
			return ErrAborted
		}
		if err := g.fetch(q, at+lo, dst[lo:min(lo+fetchBytes, len(dst))]); err != nil {
			return err
		}
	}
	return nil
}

// Allgather brings block i of data, [offsets[i], offsets[i+1]), from member i to all.
func (g *Group) Allgather(ticket [TicketBytes]byte, data []byte, offsets []int) error {
	// Whether the blocks go through slots must not depend on whose they are.
	longest := 0
	for q := range g.size {
		longest = max(longest, offsets[q+1]-offsets[q])
	}
	mine := data[offsets[g.rank]:offsets[g.rank+1]]
	k := inNote
	switch {
	case longest > SmallBytes:
		if k = g.place(mine); k.small() {
			k = inPrivate
		}
	case longest > tinyBytes:
		k = inSlot
	}
	g.round++
	if k.small() {
		copy(g.small(g.rank, k), mine)
	}
	if err := g.enter(&ticket, k, mine); err != nil {
		return err
	}
	if !k.small() && g.mustStage() {
		return g.gatherWindows(ticket, data, offsets, longest)
	}
	for d := 1; d < g.size; d++ {
		q := (g.rank + d) % g.size
		if err := g.fetchAll(q, 0, data[offsets[q]:offsets[q+1]]); err != nil {
			return err
		}
	}
	if k.small() {
		return nil
	}
	return g.leave()
}

func (g *Group) gatherWindows(ticket [TicketBytes]byte, data []byte, offsets []int, longest int) error {
	for lo := 0; lo < longest; lo += stageBytes {
		part := func(q int) []byte {
			block := data[offsets[q]:offsets[q+1]]
			return block[min(lo, len(block)):min(lo+stageBytes, len(block))]
		}
		g.round++
		copy(g.window(g.rank), part(g.rank))
		if err := g.enter(&ticket, inWindow, nil); err != nil {
			return err
		}
		for q := range g.size {
			if q != g.rank {
				copy(part(q), g.window(q))
			}
		}
	}
	return nil
}

// Alltoall hands block q of src, [out[q], out[q+1]), to member q, which finds it as block
// g.Rank() of its dst. The own block is left to the caller.
func (g *Group) Alltoall(ticket [TicketBytes]byte, src, dst []byte, out, in []int) error {
	// Lengths may differ between members, so all say first where their blocks are.
	g.round++
	table := g.window(g.rank)
	for i, o := range out {
		binary.NativeEndian.PutUint64(table[8*i:], uint64(o))
	}
	k := inPrivate
	if g.arena.holds(src) {
		k = inArena
	}
	if err := g.enter(&ticket, k, src); err != nil {
		return err
	}
	from := make([]int, g.size) // where this member's block is in another one's data
	longest := 0
	for q := range g.size {
		theirs := g.window(q)
		from[q] = int(binary.NativeEndian.Uint64(theirs[8*g.rank:]))
		longest = max(longest, int(binary.NativeEndian.Uint64(theirs[8*g.size:])))
		if n := int(binary.NativeEndian.Uint64(theirs[8*(g.rank+1):])) - from[q]; n != in[q+1]-in[q] {
			return &MismatchError{Member: q, Ticket: ticket, Sent: n, Expected: in[q+1] - in[q]}
		}
	}
	if g.mustStage() {
		return g.exchangeWindows(ticket, src, dst, from, in, longest)
	}
	for d := 1; d < g.size; d++ {
		q := (g.rank + d) % g.size
		if err := g.fetchAll(q, from[q], dst[in[q]:in[q+1]]); err != nil {
			return err
		}
	}
	return g.leave()
}

// exchangeWindows shows all of everybody's data to all, a window at a time; each takes
// what is its own.
func (g *Group) exchangeWindows(ticket [TicketBytes]byte, src, dst []byte, from, in []int, longest int) error {
	for lo := 0; lo < longest; lo += stageBytes {
		g.round++
		copy(g.window(g.rank), src[min(lo, len(src)):])
		if err := g.enter(&ticket, inWindow, nil); err != nil {
			return err
		}
		for q := range g.size {
			if q == g.rank {
				continue
			}
			begin, end := max(lo, from[q]), min(lo+stageBytes, from[q]+in[q+1]-in[q])
			if begin < end {
				at := in[q] + begin - from[q]
				copy(dst[at:at+end-begin], g.window(q)[begin-lo:end-lo])
			}
		}
	}
	return nil
}

// Barrier returns when all members have called it.
func (g *Group) Barrier(ticket [TicketBytes]byte) error {
	g.round++
	return g.enter(&ticket, inNote, nil)
}
