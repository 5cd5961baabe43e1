package collective

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// near is the maximum round trip of a cache line, in nanoseconds, between cores that share a cache.
// The two placements of a machine differ by a factor of six.
const near = 200

// placement is the round trip of a cache line between the first two cores, in nanoseconds; 0 =
// unknown.
func placement() float64 {
	if runtime.NumCPU() < 2 {
		return 0
	}
	var line struct {
		_     [128]byte
		owner atomic.Uint32
		_     [128]byte
	}
	const probing = 20 * time.Millisecond
	var stop atomic.Bool
	var trips int
	var ready, done sync.WaitGroup
	ready.Add(2)
	start := make(chan struct{})
	play := func(core int, mine uint32) {
		defer done.Done()
		runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
		var set unix.CPUSet
		set.Set(core)
		_ = unix.SchedSetaffinity(0, &set)
		ready.Done()
		<-start
		for !stop.Load() {
			if line.owner.Load() == mine {
				line.owner.Store(1 - mine)
				if mine == 0 {
					trips++
				}
			}
		}
	}
	done.Add(2)
	go play(0, 0)
	go play(1, 1)
	ready.Wait()
	close(start)
	began := time.Now()
	time.Sleep(probing)
	stop.Store(true)
	took := time.Since(began)
	done.Wait()
	return float64(took.Nanoseconds()) / float64(max(trips, 1))
}
