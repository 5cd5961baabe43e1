package statesync

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective"
)

// transfer is one member's part in sending a state to the members that lack it.
type transfer struct {
	replica *Replica
	comm    *collective.Communicator
	hashes  []chunkHash     // of the chunks of the state
	missing chunkSet        // the chunks that this member must receive
	data    []byte          // the state, as far as this member has it
	arrived []chan struct{} // by chunk: closed when it is verified; nil = this member had it before

	// Only in a member that lacks the state.
	into     *Snapshot
	inPlace  []bool // by chunk: it is in the buffer of into already
	received uint64 // bytes
}

// newTransfer broadcasts metadata and chunk hashes of the state. A member that lacks it compares
// them with what it has.
func (r *Replica) newTransfer(ctx context.Context, c *collective.Communicator, best int, want inventory) (*transfer, error) {
	chunks := chunkCount(r.Tensors.size)
	manifest := make([]byte, int(want.MetaBytes)+chunks*len(chunkHash{}))
	if c.Rank() == best {
		copy(manifest[copy(manifest, r.newest.meta):], encodeHashes(r.newest.allHashes()))
	}
	if err := c.Broadcast(ctx, collective.OfBytes(manifest), best); err != nil {
		return nil, err
	}
	t := &transfer{
		replica: r, comm: c, hashes: decodeHashes(manifest[want.MetaBytes:]), data: r.newest.data,
		missing: newChunkSet(chunks), arrived: make([]chan struct{}, chunks),
	}
	if r.newest.Digest() == want.Digest && uint64(len(r.newest.meta)) == want.MetaBytes {
		return t, nil
	}
	if digestOf(manifest[:want.MetaBytes], t.hashes) != want.Digest {
		return nil, corrupt(c, best)
	}
	var mine []chunkHash
	t.into, mine, t.inPlace = r.receiveBuffer()
	t.into.meta, t.data = manifest[:want.MetaBytes:want.MetaBytes], t.into.data
	t.received = uint64(len(manifest))
	for i, h := range t.hashes {
		if mine[i] != h {
			t.missing.add(i)
			t.inPlace[i] = false
			t.arrived[i] = make(chan struct{})
		}
		t.into.setHash(i, h)
	}
	return t, nil
}

// receiveBuffer returns the snapshot to receive into, the hashes of the chunks that this member
// has, and which of these are in the snapshot; the others are in the newest one.
func (r *Replica) receiveBuffer() (into *Snapshot, mine []chunkHash, inPlace []bool) {
	mine, inPlace = r.newest.allHashes(), make([]bool, len(r.newest.hashes))
	if r.partial == nil {
		into = r.buffer()
		into.reset()
		return into, mine, inPlace
	}
	partial := r.partial
	r.partial, r.spare = nil, partial.snapshot
	partial.snapshot.reset()
	for i, h := range partial.hashes {
		if h != (chunkHash{}) {
			mine[i], inPlace[i] = h, true
		}
	}
	return partial.snapshot, mine, inPlace
}

// run returns when all members have the state, in their tensors too.
func (t *transfer) run(ctx context.Context, holders, lacking []int) error {
	all := make([]byte, len(t.missing)*t.comm.World())
	if err := t.comm.Allgather(ctx, collective.OfBytes(t.missing), collective.OfBytes(all)); err != nil {
		return err
	}
	missing := make([]chunkSet, t.comm.World())
	for r := range missing {
		missing[r] = all[r*len(t.missing) : (r+1)*len(t.missing)]
	}
	schedule := newRelay(holders, lacking, missing).schedule(t.comm.Rank(), len(t.hashes))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	var received atomic.Uint64
	for from, chunks := range schedule.recv {
		start(func() error { return t.receive(ctx, from, chunks, &received) })
	}
	for to, chunks := range schedule.send {
		start(func() error { return t.send(ctx, to, chunks) })
	}
	if t.into != nil {
		t.copyLocal()
	}
	wg.Wait()
	t.received += received.Load()
	return context.Cause(ctx)
}

// send sends chunks to a rank, each as soon as it is here.
func (t *transfer) send(ctx context.Context, to int, chunks []int) error {
	for _, i := range chunks {
		if arrived := t.arrived[i]; arrived != nil {
			select {
			case <-arrived:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := t.comm.Send(ctx, to, chunk(t.data, i)); err != nil {
			return err
		}
	}
	return nil
}

// receive receives chunks from a rank. Each is verified and copied to the tensors while it is in
// the cache; the system receives the next one meanwhile.
func (t *transfer) receive(ctx context.Context, from int, chunks []int, received *atomic.Uint64) error {
	for _, i := range chunks {
		b := chunk(t.into.data, i)
		if err := t.comm.Recv(ctx, from, b); err != nil {
			return err
		}
		if hashOf(b) != t.hashes[i] {
			return corrupt(t.comm, from)
		}
		close(t.arrived[i])
		t.replica.Tensors.unpack(i*ChunkBytes, b)
		received.Add(uint64(len(b)))
	}
	return nil
}

// copyLocal copies the chunks that this member had before to the snapshot and the tensors.
func (t *transfer) copyLocal() {
	for i := range t.hashes {
		if t.missing.has(i) {
			continue
		}
		b := chunk(t.into.data, i)
		if !t.inPlace[i] {
			copy(b, chunk(t.replica.newest.data, i))
		}
		t.replica.Tensors.unpack(i*ChunkBytes, b)
	}
}
