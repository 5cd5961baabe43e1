//go:build cgo

package main

// #include "regroup.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/gpu"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
)

// gpuEngine is the object behind a rg_gpu: an engine on one GPU, in one generation. It has
// connections of its own, so that its operations and those on host memory need no common order.
type gpuEngine struct {
	of     *communicator
	comm   *collective.Communicator // of the same ranks, for the engine alone
	engine *gpu.Engine
	once   sync.Once // guards settle
}

// openGPU opens this rank's part of an engine; all ranks call it. It consumes the engine of an
// earlier generation if it succeeds.
func (c *communicator) openGPU(options string, before *gpuEngine) (*gpuEngine, error) {
	var o gpuOptions
	if err := decode(options, &o); err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if before != nil && before.engine.Device().Ordinal() != o.Device {
		return nil, invalidf("the engine before is on device %d, not on %d", before.engine.Device().Ordinal(), o.Device)
	}
	name, err := c.nextGPU()
	if err != nil {
		return nil, err
	}
	g := &gpuEngine{of: c}
	if g.comm, err = c.Dup(background, name); err != nil {
		return nil, err
	}
	if before != nil {
		g.engine, err = before.engine.Next(background, g.comm, o.LocalRank, o.LocalSize)
	} else {
		g.engine, err = o.engine(g.comm)
	}
	if err != nil {
		_ = g.comm.Close() // always nil
		return nil, err
	}
	c.addGPU(g)
	return g, nil
}

// do starts an operation after the work queued on a stream. Without a request, the work queued next
// waits for the operation; with one, the request completes when the GPU has finished.
func (g *gpuEngine) do(stream uintptr, started *uint64, begin func(*nccl.Stream) *gpu.Task) error {
	on := g.engine.Device().StreamOf(stream)
	if started == nil {
		return g.outcome(begin(on).Before(background, on))
	}
	r, err := g.of.newRequest()
	if err != nil {
		return err
	}
	t := begin(on)
	go func() { r.end(g.outcome(t.Wait(background))) }()
	return r.answer(started)
}

// outcome is how an operation ended. After a failure it first waits until the GPU no longer uses
// the caller's memory.
func (g *gpuEngine) outcome(err error) error {
	if err == nil || g.engine.Err() == nil {
		return err
	}
	g.engine.Quiesce()
	return g.engine.Err()
}

func (g *gpuEngine) buffer(p unsafe.Pointer, n int64, size int) (nccl.Buffer, error) {
	bytes, err := byteCount(n, size)
	if err != nil {
		return nccl.Buffer{}, err
	}
	return g.engine.Device().Buffer(background, uintptr(p), int(bytes))
}

const (
	// settleWithin is how long the closing of a communicator waits for running GPU operations.
	settleWithin = 2 * time.Second
	// closeWithin is how long closing a GPU waits for the other ranks before it aborts NCCL.
	closeWithin = 10 * time.Second
)

// settle waits once for what was started: NCCL survives where all ranks have done the same
// operations.
func (g *gpuEngine) settle() {
	g.once.Do(func() {
		ctx, cancel := context.WithTimeout(background, settleWithin)
		defer cancel()
		_ = g.engine.Synchronize(ctx) // the caller has a request, or asks rg_comm_failed
	})
}

// drain leaves the generation; the engine waits for the next one, or for its end.
func (g *gpuEngine) drain() {
	g.settle()
	_ = g.comm.Close() // always nil
}

func (g *gpuEngine) close() error {
	ctx, cancel := context.WithTimeout(background, closeWithin)
	defer cancel()
	err := g.engine.Close(ctx)
	g.of.drop(g)
	_ = g.comm.Close() // always nil
	if errors.Is(err, nccl.ErrStuck) {
		return err // the GPU's thread stays
	}
	return errors.Join(err, g.engine.Device().Close(background))
}

func (g *gpuEngine) describe() ([]byte, error) {
	l := g.engine.Device().Library()
	cuda, from := l.From()
	return json.Marshal(struct {
		Engine string `json:"engine"`
		NCCL   string `json:"nccl"`
		Driver string `json:"driver"`
		From   string `json:"from"`
	}{g.engine.Describe(), l.Version().String(), l.Driver(), fmt.Sprintf("%s and %s", cuda, from)})
}

// doNamed starts an operation that begins when all ranks have started one of this name. Its request
// completes when the GPU has finished or, if ordered, when the work queued next on the stream waits
// for it.
func (g *gpuEngine) doNamed(name, kind string, stream uintptr, ordered bool, started *uint64, begin func(*nccl.Stream) *gpu.Task) error {
	if started == nil {
		return invalidf("an operation by name needs a place for its request")
	}
	r, err := g.of.newRequest()
	if err != nil {
		return err
	}
	on := g.engine.Device().StreamOf(stream)
	var task *gpu.Task
	r.handle = g.of.namedQueue().Do(name, kind, func(context.Context, *collective.Communicator) error {
		task = begin(on)
		return nil
	})
	*started = r.id
	r.handle.Then(func(err error) {
		if err != nil {
			r.end(err)
			return
		}
		go func() {
			if ordered {
				r.end(g.outcome(task.Before(background, on)))
				return
			}
			r.end(g.outcome(task.Wait(background)))
		}()
	})
	return nil
}

// gpuEngines are a communicator's engines on GPUs, guarded by the communicator's mu.
type gpuEngines struct {
	opened int // how many were requested, on all ranks alike
	here   []*gpuEngine
}

// nextGPU names the connections of the next engine.
func (c *communicator) nextGPU() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return "", collective.ErrClosed
	}
	c.gpus.opened++
	return fmt.Sprint("gpu ", c.gpus.opened), nil
}

// addGPU closes the engine with the communicator.
func (c *communicator) addGPU(g *gpuEngine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gpus.here = append(c.gpus.here, g)
}

func (c *communicator) drop(g *gpuEngine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gpus.here = slices.DeleteFunc(c.gpus.here, func(other *gpuEngine) bool { return other == g })
}

func (c *communicator) engines() []*gpuEngine {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.gpus.here)
}

// gpuOptions are the options of rg_gpu_open.
type gpuOptions struct {
	Device     int      `json:"device"`
	LocalRank  int      `json:"local_rank"`
	LocalSize  int      `json:"local_size"`
	ChunkBytes int      `json:"chunk_bytes"`
	Search     []string `json:"search"`
	Absent     string   `json:"absent"`
}

func (o *gpuOptions) validate() error {
	if o.Device < 0 || o.LocalRank < 0 || o.LocalSize < 0 || o.LocalRank >= max(o.LocalSize, 1) {
		return invalidf("device %d, local_rank %d of local_size %d", o.Device, o.LocalRank, o.LocalSize)
	}
	if o.ChunkBytes < 0 || o.ChunkBytes%64 != 0 {
		return invalidf("chunk_bytes %d is no multiple of 64", o.ChunkBytes)
	}
	return nil
}

// engine makes an engine where there was none before. All ranks learn of a GPU that cannot be used.
func (o *gpuOptions) engine(c *collective.Communicator) (*gpu.Engine, error) {
	e := gpu.Options{LocalRank: o.LocalRank, LocalSize: o.LocalSize, ChunkBytes: o.ChunkBytes}
	e.Device, e.Absent = o.device()
	made, err := gpu.New(background, c, e)
	if err != nil && e.Device != nil {
		err = errors.Join(err, e.Device.Close(background))
	}
	return made, err
}

// device opens the GPU, or says why there is none.
func (o *gpuOptions) device() (*nccl.Device, error) {
	if o.Absent != "" {
		return nil, errors.New(o.Absent)
	}
	l, err := openNative(o.Search)
	if err != nil {
		return nil, err
	}
	return l.OpenDevice(background, o.Device)
}

// native is NCCL and the CUDA driver. It is loaded when a GPU is first requested, and never
// unloaded.
var native struct {
	mu      sync.Mutex
	library *nccl.Library
}

// openNative tries again after a failure: the host may have loaded a framework since.
func openNative(search []string) (_ *nccl.Library, err error) {
	native.mu.Lock()
	defer native.mu.Unlock()
	if native.library == nil {
		native.library, err = nccl.Open(nccl.Options{Search: search})
	}
	return native.library, err
}

//export rgo_gpu_open
func rgo_gpu_open(h C.uint64_t, options *C.char, before C.uint64_t, out *C.uint64_t) C.int {
	return withWorld(h, func(c *communicator) error {
		old, open := lookUp[*gpuEngine](uint64(before))
		if before != 0 && !open {
			return notOpen[*gpuEngine](before)
		}
		err := returnHandle(out, func() (*gpuEngine, error) { return c.openGPU(text(options), old) })
		if err == nil {
			take[*gpuEngine](uint64(before))
		}
		return err
	})
}

// launch starts an operation after the work queued on a stream.
type launch func(on *nccl.Stream) *gpu.Task

// start checks an operation's arguments and starts it on the GPU.
func (g *gpuEngine) start(op *C.rg_op, started *uint64) error {
	begin, kind, err := g.launch(op)
	if err != nil {
		return err
	}
	stream := uintptr(op.stream)
	if op.name == nil {
		return g.do(stream, started, begin)
	}
	return g.doNamed(text(op.name), kind+", "+text(op.detail), stream, op.ordered != 0, started, begin)
}

// launch checks the arguments. kind describes what must be equal on all ranks.
func (g *gpuEngine) launch(op *C.rg_op) (begin launch, kind string, err error) {
	t, err := typeOf(int32(op._type))
	if err != nil {
		return nil, "", err
	}
	kind = fmt.Sprintf("of %d %v on GPUs", int64(op.count), t)
	root := int(op.peer)
	switch op.code {
	case C.RG_ALLREDUCE, C.RG_REDUCE, C.RG_REDUCE_SCATTER:
		return g.launchReduction(op, t, kind)
	case C.RG_BROADCAST:
		b, err := g.buffer(op.recv, int64(op.count), t.Size())
		return func(on *nccl.Stream) *gpu.Task { return g.engine.Broadcast(background, on, b, root) },
			fmt.Sprintf("broadcast %s from rank %d", kind, root), err
	case C.RG_ALLGATHER:
		recv, err1 := g.buffer(op.recv, int64(op.count), t.Size()*g.of.World())
		send, err2 := g.buffer(op.send, int64(op.count), t.Size())
		return func(on *nccl.Stream) *gpu.Task { return g.engine.Allgather(background, on, send, recv) },
			"allgather " + kind, errors.Join(err1, err2)
	case C.RG_ALLTOALL:
		return g.launchAlltoall(op, t)
	}
	return nil, "", unknownOperation(op)
}

func (g *gpuEngine) launchReduction(op *C.rg_op, t kernel.Type, kind string) (begin launch, _ string, err error) {
	o, wire, err := g.reduction(op, t)
	if err != nil {
		return nil, "", err
	}
	recv, err := g.buffer(op.recv, int64(op.count), t.Size())
	if err != nil {
		return nil, "", err
	}
	kind = fmt.Sprintf("%s, %v, sent as %d", kind, o, wire)
	switch root := int(op.peer); {
	case op.code == C.RG_REDUCE:
		return func(on *nccl.Stream) *gpu.Task { return g.engine.Reduce(background, on, recv, t, o, root) },
			fmt.Sprintf("reduce %s, at rank %d", kind, root), nil
	case op.code == C.RG_REDUCE_SCATTER:
		send, err := g.buffer(op.send, int64(op.count), t.Size()*g.of.World())
		return func(on *nccl.Stream) *gpu.Task { return g.engine.ReduceScatter(background, on, send, recv, t, o) },
			"reduce-scatter " + kind, err
	case wire != 0:
		begin = func(on *nccl.Stream) *gpu.Task { return g.engine.AllreduceAs(background, on, wire, recv, o) }
	default:
		begin = func(on *nccl.Stream) *gpu.Task { return g.engine.Allreduce(background, on, recv, t, o) }
	}
	return begin, "allreduce " + kind, nil
}

func (g *gpuEngine) launchAlltoall(op *C.rg_op, t kernel.Type) (begin launch, kind string, err error) {
	send, to, err1 := g.blocks(op.send, op.send_counts, op, t)
	recv, from, err2 := g.blocks(op.recv, op.recv_counts, op, t)
	return func(on *nccl.Stream) *gpu.Task { return g.engine.Alltoall(background, on, send, recv, to, from) },
		fmt.Sprintf("alltoall of %v on GPUs", t), errors.Join(err1, err2)
}

// blocks is the memory of an alltoall's blocks, and how many bytes each has; nil = they are equal.
func (g *gpuEngine) blocks(p unsafe.Pointer, counts *C.int64_t, op *C.rg_op, t kernel.Type) (b nccl.Buffer, each []int, err error) {
	each, total, err := blocks(counts, int64(op.count), g.of.World())
	if err != nil {
		return b, nil, err
	}
	if b, err = g.buffer(p, total, t.Size()); err != nil { // so no product below is too large
		return b, nil, err
	}
	for i := range each {
		each[i] *= t.Size()
	}
	return b, each, nil
}

func (g *gpuEngine) reduction(op *C.rg_op, t kernel.Type) (o collective.Op, wire kernel.Type, err error) {
	if o, err = opOf(int32(op.reduction)); err != nil {
		return o, 0, err
	}
	wire, err = wireOf(int32(op.wire))
	if err == nil && wire != 0 && t != kernel.Float32 {
		err = invalidf("only float32 is sent as something else")
	}
	return o, wire, err
}

//export rgo_gpu_describe
func rgo_gpu_describe(h C.uint64_t, buffer *C.char, size C.size_t) C.int {
	return withText(h, buffer, size, (*gpuEngine).describe)
}

//export rgo_gpu_close
func rgo_gpu_close(h C.uint64_t) C.int {
	return closeHandle(h, (*gpuEngine).close)
}
