package worker

import (
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// master is what MASTER_ADDR and MASTER_PORT of a generation would be if a worker of this node got
// rank 0: one for all workers of the node, and a new one for each generation, so that nothing that
// an earlier generation has left can be found there.
type master struct {
	address string           // empty = none yet
	asked   time.Time        // of the last PrepareMaster
	used    ident.Generation // which has begun with it; 0 = none
}

// planMaster prepares the master of the next generation.
func (t *transition) planMaster(j *job) {
	if j.master.used > 0 {
		t.releaseMaster(&j.previous)
		j.previous, j.master = j.master, master{}
	}
	if j.master.address == "" && !t.now.Before(j.master.asked.Add(masterTimeout)) {
		j.master.asked = t.now
		t.do(PrepareMaster{Job: j.launch.Job, Store: j.launch.Spec.Processes.Store})
	}
}

func (in MasterPrepared) apply(t *transition) {
	j := t.s.jobs[in.Job]
	if in.Address == "" {
		return // it is asked for again
	}
	if j == nil || j.master.address != "" || j.master.asked.IsZero() {
		t.do(ReleaseMaster{Address: in.Address})
		return
	}
	j.master.address = in.Address
	for _, w := range j.incarnations {
		if w.phase == planned && w.address == "" {
			w.address = in.Address
			if w.join != nil {
				w.join.sendAt = t.now
			}
		}
	}
}

// useMaster begins a generation, whose predecessor has no workers any more.
func (t *transition) useMaster(j *job) {
	g := j.launch.Generation
	if j.master.used == g || j.previous.used == g {
		return // another worker of the node has begun it
	}
	j.master.used = g
	t.releaseMaster(&j.previous)
}

// releaseMasters ends those of a job that has no workers here.
func (t *transition) releaseMasters(j *job) {
	t.releaseMaster(&j.previous)
	t.releaseMaster(&j.master)
}

func (t *transition) releaseMaster(m *master) {
	if m.address != "" {
		t.do(ReleaseMaster{Address: m.address})
	}
	*m = master{}
}
