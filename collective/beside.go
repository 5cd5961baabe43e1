package collective

import (
	"sync"
	"sync/atomic"
)

// For what runs beside the communicator and shares its fate, such as the collectives of GPUs.

// Done is closed soon after the communicator has failed or was closed: Failed tells which.
func (c *Communicator) Done() <-chan struct{} { return c.life.Done() }

// beside counts what waits for peers without being an operation.
type beside struct {
	waiting atomic.Int32
	since   atomic.Int64 // the tick since which there has been some
}

// Await says that something else waits for all ranks, until done is called: as during an
// operation, a neighbour whose process is silent for StallAfter is lost. Close does not wait
// for done.
func (c *Communicator) Await() (done func()) {
	if c.beside.waiting.Add(1) == 1 {
		c.beside.since.Store(c.looks.Load())
	}
	return sync.OnceFunc(func() { c.beside.waiting.Add(-1) })
}

// waitsLong says whether something has been waiting for peers for StallAfter or longer.
func (c *Communicator) waitsLong(looks int64) bool {
	const limit = beatsPerStall * looksPerBeat
	return c.busy.Load() > 0 && looks-c.waitingSince.Load() > limit ||
		c.beside.waiting.Load() > 0 && looks-c.beside.since.Load() > limit
}
