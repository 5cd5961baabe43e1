// Package meter measures how much of the processors and the memory of a machine is used, in all and
// by the processes of workers.
package meter

import (
	"os"
	"time"

	"github.com/regroup-io/regroup/agent/procfs"
	"github.com/regroup-io/regroup/events/usage"
)

// Meter measures. Processors are averages since the measurement before.
type Meter struct {
	proc   procfs.Dir
	at     time.Time          // of the measurement before; zero = there was none
	busy   uint64             // of the machine at that time, in ticks
	before map[process]uint64 // what every process had used then; nil = none was looked at
}

// process is one that lives: a number alone may be another process's later.
type process struct {
	pid   int
	start uint64
}

// New returns a meter that reads a mounted procfs, such as /proc.
func New(proc string) *Meter { return &Meter{proc: procfs.Dir(proc)} }

// Reading is what was measured.
type Reading struct {
	Machine    usage.Of
	Processors int
	Memory     uint64           // of the machine, in bytes
	Workers    map[int]usage.Of // by process id, of those that live; empty = processes were not looked at before
}

// Read measures the machine, and each of these processes together with those that it has started.
// ok is false for the first time, and where there is no procfs.
func (m *Meter) Read(now time.Time, workers []int) (r Reading, ok bool) {
	busy, processors, known := m.proc.Busy()
	total, available := m.proc.Memory()
	if !known || total == 0 {
		return r, false
	}
	seconds := now.Sub(m.at).Seconds()
	ok = !m.at.IsZero() && seconds > 0
	r = Reading{Processors: processors, Memory: total, Workers: map[int]usage.Of{}}
	if ok {
		// A reader that waits for a processor reads later than it says: all are the most.
		r.Machine = usage.Of{Processors: min(average(m.busy, busy, seconds), float64(processors)), Memory: total - min(available, total)}
	}
	var used map[process]uint64
	if len(workers) > 0 {
		used = m.read(&r, workers, seconds)
	}
	m.at, m.busy, m.before = now, busy, used
	return r, ok
}

// read adds up the processes of workers, and returns what each process has used so far. One that
// becomes a worker may be old, such as a spare: what it had used before is not of now.
func (m *Meter) read(r *Reading, workers []int, seconds float64) map[process]uint64 {
	tasks := map[int]procfs.Task{}
	for _, pid := range m.proc.Processes() {
		if t, ok := m.proc.Process(pid); ok {
			tasks[pid] = t
		}
	}
	of := map[int]int{} // the worker that has started a process, by process id; 0 = none
	for _, pid := range workers {
		of[pid] = pid
	}
	var starter func(pid int, depth int) int
	starter = func(pid, depth int) int {
		worker, known := of[pid]
		if t, there := tasks[pid]; !known && there && depth < 64 {
			worker = starter(t.ParentID(), depth+1)
		}
		of[pid] = worker
		return worker
	}
	used, page := map[process]uint64{}, uint64(os.Getpagesize())
	for pid, t := range tasks {
		p := process{pid, t.Start}
		used[p] = t.Ticks
		worker := starter(pid, 0)
		if _, lives := tasks[worker]; !lives || m.before == nil {
			continue
		}
		u := r.Workers[worker]
		u.Memory += t.Pages * page
		u.Processors += average(m.before[p], t.Ticks, seconds) // one that is not there has begun since
		r.Workers[worker] = u
	}
	return used
}

// average returns how many processors were used from one measurement to the next.
func average(before, now uint64, seconds float64) float64 {
	if now <= before || seconds <= 0 {
		return 0
	}
	return float64(now-before) / procfs.TicksPerSecond / seconds
}
