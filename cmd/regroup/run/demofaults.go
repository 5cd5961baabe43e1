package run

import (
	"errors"
	"sync"
	"syscall"

	"github.com/regroup-io/regroup/events"
)

// faults injects each fault once, when its step is reached and four workers train, so that runs are
// comparable.
type faults struct {
	demo *demo

	mu     sync.Mutex
	sealed events.RoundSealed
	ready  bool // the sealed generation makes steps
	next   int
	errs   []error
}

func (f *faults) fact(b events.Body) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch b := b.(type) {
	case events.RoundSealed:
		f.sealed, f.ready = b, false
	case events.WorkerReady:
		f.ready = f.ready || b.Generation == f.sealed.Generation
	}
}

func (f *faults) progress(p events.Progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ready || p.Generation != f.sealed.Generation {
		return
	}
	world := len(f.sealed.Members)
	var err error
	switch {
	case f.next == 0 && p.Step >= killWorkerAt && world == 4:
		victim := f.sealed.Members[2]
		f.demo.say("step %d: kill -9 rank %d on %s (pid %d)", p.Step, victim.Rank, victim.Place, victim.PID)
		err = syscall.Kill(victim.PID, syscall.SIGKILL)
	case f.next == 1 && p.Step >= killNodeAt && world == 4:
		f.demo.say("step %d: kill -9 the agent of node-c, and its worker dies with it", p.Step)
		err = f.demo.nodes.kill("node-c")
	case f.next == 2 && p.Step >= addNodeAt && world == 3:
		f.demo.say("step %d: node-d joins with 1 slot", p.Step)
		err = f.demo.nodes.start("node-d", 1)
	default:
		return
	}
	f.next++
	f.ready = false // the next fault waits for a generation that makes steps
	if err != nil {
		f.errs = append(f.errs, err)
	}
}

func (f *faults) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next < 3 {
		f.errs = append(f.errs, errors.New("the job ended before all faults were made: give it more epochs"))
	}
	return errors.Join(f.errs...)
}
