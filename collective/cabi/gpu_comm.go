//go:build cgo

package main

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/collective"
)

// accelerated is what a communicator knows of its engines on GPUs. It is guarded by the communicator's mu.
type accelerated struct {
	opened int // how often one was asked for, on all ranks alike
	here   []*gpu
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

// hold has the engine leave with the communicator.
func (c *communicator) hold(g *gpu) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gpus.here = append(c.gpus.here, g)
}

func (c *communicator) drop(g *gpu) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gpus.here = slices.DeleteFunc(c.gpus.here, func(other *gpu) bool { return other == g })
}

// engines are those that the communicator has now.
func (c *communicator) engines() []*gpu {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.gpus.here)
}
