// Package exec carries out the operations of a generation over its data connections.
//
// An Engine runs one collective operation at a time, in the order of the calls. Ranks of one
// machine communicate through shared memory (package shm). Other operations follow a plan (package
// schedule) over data connections, which are dialed when a plan first needs them; a table chooses
// the plan by operation, world and size. The calling thread alone carries out small plans, with
// plain system calls; a second thread sends in large ones. In generations of several machines an
// operation is divided into parts within and between the machines where that sends less.
//
// Point-to-point messages have connections of their own and do not wait for collective operations.
package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/regroup-io/regroup/collective/internal/contention"
	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
	"github.com/regroup-io/regroup/collective/shm"
)

// Config is what an Engine needs to know beside its session. See the Options of package collective.
type Config struct {
	Rank, World          int
	LocalRank, LocalSize int
	NoSharedMemory       bool
	StallAfter           time.Duration
	ChunkBytes           int
	Streams              int
	Table                []Rule
	InlineBytes          int
	NewConn              func(net.Conn) (Conn, error)
	Arena                func() (*shm.Arena, error) // of this process
	Mappings             *shm.MappingCache
}

// Engine carries out the operations of one rank of a generation. It is the data plane of its
// session.
type Engine struct {
	cfg     Config
	session *control.Session
	conns   connTable
	p2p     p2p // of all origins
	local   localGroup
	nodes   *topology // nil = all ranks share memory, or none do

	operation *semaphore.Weighted // held by the running operation; guards what follows

	op       opContext
	seq      uint64 // of the running operation
	offsets  []int  // scratch
	executor executor
}

// New returns an engine for a session that has not started.
func New(session *control.Session, cfg Config) *Engine {
	e := &Engine{cfg: cfg, session: session, operation: semaphore.NewWeighted(1), op: opContext{session: session}}
	e.conns = connTable{session: session, op: &e.op, cfg: &e.cfg, peers: map[int]*peerConns{}}
	e.local = localGroup{
		session: session, op: &e.op, cfg: &e.cfg, first: cfg.Rank - cfg.LocalRank,
		arrivals: make(chan localConn, max(cfg.LocalSize, 1)),
	}
	e.p2p = p2p{session: session, local: &e.local, cfg: &e.cfg, peers: map[p2pPeer]*p2pConns{}}
	e.executor = executor{
		session: session, cfg: &e.cfg, conns: &e.conns, ctx: &e.op, waits: waitsOf(cfg),
		sentMore: make(chan struct{}, 1), recvMore: make(chan struct{}, 1),
		startSend: make(chan struct{}, 1), sendDone: make(chan error, 1),
	}
	return e
}

// waits is how a thread waits that can neither send nor receive.
type waits struct {
	spins      int // how often it polls before it sleeps
	yields     int // how often it yields the processor and polls again
	contention contention.State
	began      time.Time
	looked     time.Duration // when it last polled, since then
}

// waitsOf: 64 polls are about 20 µs, less than a wake-up takes. With more ranks than processors on
// this machine, polling would keep the rank from running that it waits for, so it yields to that.
func waitsOf(cfg Config) waits {
	w := waits{began: time.Now()}
	if cmp.Or(cfg.LocalSize, cfg.World) > runtime.NumCPU() {
		w.yields = 100
	} else {
		w.spins = 64
	}
	return w
}

// again reports whether it should poll once more, when it has done that so many times, rather than
// sleep.
func (w *waits) again(polls int) bool {
	switch {
	case polls < w.spins:
		return true
	case polls >= w.spins+w.yields:
		return false
	}
	now := time.Since(w.began)
	if polls == w.spins {
		w.looked = now
	}
	if w.contention.Sleeps(now) || w.contention.Noticed(&w.looked, now) {
		return false
	}
	contention.Yield()
	return true
}

// Dial begins what Connect needs, while the session connects. The caller calls stop after both.
func (e *Engine) Dial(ctx context.Context) (stop func()) { return e.local.dial(ctx) }

// Connect forms the group of this machine and discovers the nodes, when the session is connected.
func (e *Engine) Connect(ctx context.Context) error {
	if err := e.local.form(ctx); err != nil {
		return err
	}
	return e.discoverTopology(ctx)
}

// Execute runs an operation. The caller has acquired the engine, and has validated the arguments.
// send is used by an all-gather only, whose blocks begin at offsets if they differ in length.
func (e *Engine) Execute(ctx context.Context, d frame.Descriptor, send, data []byte, offsets []int) error {
	size := d.Type.Size()
	e.seq++
	d.Seq, d.Count = e.seq, uint64(len(data)/size)
	if d.Method == frame.Allgather {
		at := e.cfg.Rank * len(send)
		if offsets == nil {
			offsets = e.evenOffsets(len(data) / size / e.cfg.World)
		} else {
			at = offsets[e.cfg.Rank] * size
		}
		copy(data[at:], send)
	}
	if e.cfg.World == 1 {
		return nil
	}
	e.begin(ctx, d, len(data))
	defer e.op.end()
	switch {
	case e.local.spans(e.cfg.World):
		return e.local.run(d, data, offsets)
	case e.nodes != nil && e.nodes.help(d.Method):
		return e.executeAcrossNodes(ctx, d, data, offsets)
	}
	place := schedule.Place{World: e.cfg.World, Rank: e.cfg.Rank}
	e.executor.prepare(d, place, nil, len(data)/size, int(d.Root), offsets)
	return e.executor.run(ctx, d, data, data)
}

// begin publishes an operation to the ranks that compare it.
func (e *Engine) begin(ctx context.Context, d frame.Descriptor, bytes int) {
	// The descriptor is encoded long before it is read: a processor stalls when it reads by wider
	// accesses what it has just written.
	frame.Header{Kind: frame.Data, Op: d}.Put(e.local.descriptor[:])
	e.session.BeginOp(d)
	e.op.begin(ctx, bytes)
}

func (e *Engine) evenOffsets(n int) []int {
	e.offsets = e.offsets[:0]
	for i := range e.cfg.World + 1 {
		e.offsets = append(e.offsets, i*n)
	}
	return e.offsets
}

// ExecuteAlltoall sends block i of send to rank i and receives its block i in recv. out and in are
// where the blocks begin and the last one ends, in elements. The caller has acquired the engine.
func (e *Engine) ExecuteAlltoall(ctx context.Context, d frame.Descriptor, send, recv []byte, out, in []int) error {
	own, size := e.cfg.Rank, d.Type.Size()
	e.seq++
	copy(recv[in[own]*size:in[own+1]*size], send[out[own]*size:])
	if e.cfg.World == 1 {
		return nil
	}
	d.Seq = e.seq // the ranks' lengths may differ, so Count is nothing that they must agree on
	e.begin(ctx, d, len(send))
	defer e.op.end()
	if e.local.spans(e.cfg.World) {
		in = append([]int(nil), e.local.inBytes(in, size)...)
		return e.local.check(d, e.local.group.Alltoall(e.local.descriptor, send, recv, e.local.inBytes(out, size), in))
	}
	x := &e.executor
	// The totals may differ too, so the size of messages must not depend on them.
	schedule.Alltoall(&x.plan, schedule.Place{World: e.cfg.World, Rank: own}, out, in, e.cfg.chunk(0, size))
	x.place, x.ranks, x.out, x.in = own, nil, out, in
	return x.run(ctx, d, send, recv)
}

// subgroupRoot is the root of a subgroup's allreduce as neighbours of all subgroups compare it: an
// allreduce of the world has none.
const subgroupRoot = 1

// ExecuteSubgroup runs an allreduce among the given ranks, of which this rank is number place. The
// caller has acquired the engine.
func (e *Engine) ExecuteSubgroup(ctx context.Context, d frame.Descriptor, ranks []int, place int, data []byte) error {
	e.seq++
	if e.cfg.World == 1 {
		return nil
	}
	n := len(data) / d.Type.Size()
	d.Seq, d.Count, d.Root = e.seq, uint64(n), subgroupRoot
	e.begin(ctx, d, len(data))
	defer e.op.end()
	if len(ranks) == 1 {
		return nil
	}
	// The subgroup's own messages carry a hash of the subgroup, and are summed: only here is it
	// known by how many an average is divided.
	average := d.Reduce == frame.Average
	d.Root = subgroupHash(ranks, d.Reduce)
	if average {
		d.Reduce = frame.Sum
	}
	e.executor.prepare(d, schedule.Place{World: len(ranks), Rank: place}, ranks, n, 0, nil)
	if err := e.executor.run(ctx, d, data, data); err != nil {
		if errors.Is(err, control.ErrDiverged) {
			return fmt.Errorf("among ranks %v: %w", ranks, err)
		}
		return err
	}
	if average {
		kernel.Average(d.Type, data, len(ranks))
	}
	return nil
}

// subgroupHash is equal for the same subgroup and reduction, and most likely different for others
// (FNV-1a). It is never the root of an allreduce.
func subgroupHash(ranks []int, op frame.ReduceOp) uint32 {
	h := (uint32(2166136261) ^ uint32(op)) * 16777619
	for _, r := range ranks {
		h = (h ^ uint32(r)) * 16777619
	}
	return h | 2
}

// Admit implements control.DataPlane.
func (e *Engine) Admit(p control.Purpose, from, stream int) (refusal string) {
	switch p {
	case control.PurposeData:
		return e.conns.admit(from, stream)
	case control.PurposeLocal:
		return e.local.admit(from)
	}
	return ""
}

// Adopt implements control.DataPlane.
func (e *Engine) Adopt(p control.Purpose, from, stream int, conn net.Conn) {
	switch p {
	case control.PurposeData:
		e.conns.adopt(from, stream, conn)
	case control.PurposeDirect:
		e.p2p.adopt(p2pPeer{from, uint8(stream)}, conn)
	default:
		e.local.adopt(from, conn)
	}
}

// Interrupt implements control.DataPlane.
func (e *Engine) Interrupt() {
	e.conns.each(Conn.Shutdown)
	e.local.interrupt()
	e.p2p.close()
}

// PeerLeft implements control.DataPlane.
func (e *Engine) PeerLeft(rank int) {
	e.conns.peerLeft(rank)
	e.local.peerLeft(rank)
}

// WaitTime implements control.DataPlane.
func (e *Engine) WaitTime() time.Duration { return e.conns.waitTime() + e.local.waitTime() }

// SharesMemory reports whether a rank and this one can read each other's memory.
func (e *Engine) SharesMemory(rank int) bool { return e.local.canRead(rank) }

// IsLocal reports whether a rank is on this machine.
func (e *Engine) IsLocal(rank int) bool { return e.local.contains(rank) }

// Group is the group of this machine's ranks; nil = they do not share memory.
func (e *Engine) Group() *shm.Group { return e.local.group }

// Nodes is the number of nodes, if operations are divided between them, else 0.
func (e *Engine) Nodes() int {
	if e.nodes == nil {
		return 0
	}
	return len(e.nodes.first)
}

// Stop ends the goroutine of the engine when the session has left and no operation is running.
func (e *Engine) Stop() { e.executor.stopSender() }

// Close releases connections and shared memory, when all tasks of the session have ended.
func (e *Engine) Close() {
	e.conns.each(Conn.Close)
	e.local.close()
}

// Describe returns how this rank communicates with the others, for people.
func (e *Engine) Describe() string {
	group := e.local.group
	switch {
	case e.cfg.World == 1:
		return "alone"
	case group == nil:
		return fmt.Sprintf("%d ranks over connections (%v)", e.cfg.World, e.local.disabled)
	case e.cfg.LocalSize == e.cfg.World:
		return fmt.Sprintf("%d ranks on this machine through %s", e.cfg.World, group.Describe())
	}
	return fmt.Sprintf("%d of %d ranks on this machine through %s, the others over connections",
		e.cfg.LocalSize, e.cfg.World, group.Describe())
}
