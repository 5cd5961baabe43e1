//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/nccl"
)

// gpu is what a rg_gpu stands for: an engine on one GPU, in one generation. It has connections of its own, so that its
// operations and those on the host's memory need no common order.
type gpu struct {
	of     *communicator
	beside *collective.Communicator // of the same ranks, for the engine alone
	engine *nccl.Engine
	once   sync.Once // of settle
}

var gpus table[*gpu]

// openGPU makes this rank's part of an engine; all ranks do so. One of an earlier generation is used up if that works.
func (c *communicator) openGPU(options string, before *gpu) (*gpu, error) {
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
	g := &gpu{of: c}
	if g.beside, err = c.Dup(background, name); err != nil {
		return nil, err
	}
	if before != nil {
		g.engine, err = before.engine.Next(background, g.beside, o.LocalRank, o.LocalSize)
	} else {
		g.engine, err = o.engine(g.beside)
	}
	if err != nil {
		_ = g.beside.Close() // always nil
		return nil, err
	}
	c.hold(g)
	return g, nil
}

// do begins an operation behind what is queued on a stream. Without a request what is queued there next waits for it;
// with one, that ends when the GPU has done it.
func (g *gpu) do(stream uintptr, started *uint64, begin func(*nccl.Stream) *nccl.Task) error {
	on := g.engine.Device().StreamOf(stream)
	if started == nil {
		return g.outcome(begin(on).Before(background, on))
	}
	r, err := g.of.start(nil)
	if err != nil {
		return err
	}
	t := begin(on)
	go func() { r.end(g.outcome(t.Wait(background))) }()
	return r.answer(started)
}

// outcome is how an operation ended. After a failure the GPU leaves the caller's memory alone first.
func (g *gpu) outcome(err error) error {
	if err == nil || g.engine.Err() == nil {
		return err
	}
	g.engine.Quiet()
	return g.engine.Err()
}

// buffer is memory of the caller on the GPU.
func (g *gpu) buffer(p unsafe.Pointer, n int64, size int) (nccl.Buffer, error) {
	b, err := memory(p, n, size)
	if err != nil {
		return nccl.Buffer{}, err
	}
	return g.engine.Device().Buffer(background, uintptr(p), len(b))
}

const (
	// settleWithin is how long a communicator that is closed waits for what its GPU has under way.
	settleWithin = 2 * time.Second
	// closeWithin is how long closing a GPU waits for the other ranks, before NCCL is aborted.
	closeWithin = 10 * time.Second
)

// settle waits for what was started, once: NCCL is kept where all ranks have done equally much.
func (g *gpu) settle() {
	g.once.Do(func() {
		ctx, cancel := context.WithTimeout(background, settleWithin)
		defer cancel()
		_ = g.engine.Settle(ctx) // who is to know has a request, or asks rg_comm_failed
	})
}

// rest leaves the generation; the engine waits for the next one, or for its end.
func (g *gpu) rest() {
	g.settle()
	_ = g.beside.Close() // always nil
}

// close frees what there is.
func (g *gpu) close() error {
	ctx, cancel := context.WithTimeout(background, closeWithin)
	defer cancel()
	err := g.engine.Close(ctx)
	g.of.drop(g)
	_ = g.beside.Close() // always nil
	if errors.Is(err, nccl.ErrStuck) {
		return err // the GPU's thread stays
	}
	return errors.Join(err, g.engine.Device().Close(background))
}

func (g *gpu) describe() ([]byte, error) {
	l := g.engine.Device().Library()
	cuda, from := l.From()
	return json.Marshal(struct {
		Engine string `json:"engine"`
		NCCL   string `json:"nccl"`
		Driver string `json:"driver"`
		From   string `json:"from"`
	}{g.engine.Describe(), l.Version().String(), l.Driver(), fmt.Sprintf("%s and %s", cuda, from)})
}

// doNamed starts an operation that begins when all ranks have started one of this name. Its request ends when the GPU has
// done it or, if ordered, when what is queued on the stream next waits for it.
func (g *gpu) doNamed(name, kind string, stream uintptr, ordered bool, started *uint64, begin func(*nccl.Stream) *nccl.Task) error {
	if started == nil {
		return invalidf("an operation by name needs a place for its request")
	}
	r, err := g.of.start(nil)
	if err != nil {
		return err
	}
	on := g.engine.Device().StreamOf(stream)
	var task *nccl.Task
	r.handle = g.of.names().Do(name, kind, func(context.Context, *collective.Communicator) error {
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
