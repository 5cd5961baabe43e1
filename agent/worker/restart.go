package worker

import (
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
)

// restart compares a launch with the processes of a job that is a new set of processes in each generation.
func (t *turn) restart(j *job) {
	l := j.launch
	for _, slot := range j.slots() {
		w := j.lives[slot]
		_, ok := j.listed(slot)
		switch {
		case w.alive() && (!ok || w.ref.Generation < l.Generation):
			t.stop(j, w, false)
		case w.phase == planned && !ok:
			delete(j.lives, slot)
		}
	}
	for _, m := range l.Members {
		if l.Phase == events.PhaseRun && m.Rank >= 0 {
			t.run(j, m)
		} else {
			t.plan(j, m)
		}
	}
}

// plan joins in the place of a process to come.
func (t *turn) plan(j *job, m events.LaunchMember) {
	w := j.lives[m.Place.Slot]
	switch {
	case w == nil:
		w = t.planLife(j, m, nil)
	case w.alive():
		return
	case w.phase == planned:
		if w.ref.Attempt != m.Attempt {
			w = t.planLife(j, m, w)
		}
	case w.asked || w.ref.Attempt < m.Attempt:
		w = t.planLife(j, m, w)
	default:
		return // it ended by itself: its judges will name the next attempt
	}
	if w.address == "" && !t.now.Before(w.portAsked.Add(portTimeout)) {
		w.portAsked = t.now
		t.do(NeedPort{Job: j.launch.Job, Place: m.Place, Worker: w.ref.Incarnation})
	}
	if w.join == nil {
		w.join = &join{req: wire.JoinRequest{Left: uint64(w.before)}, arrived: t.now, next: t.now}
	}
}

// planLife makes the next life of a place; what the life before it went through becomes the story of its return.
func (t *turn) planLife(j *job, m events.LaunchMember, old *life) *life {
	w := t.life(j, m)
	w.phase = planned
	switch {
	case old == nil:
	case old.phase == planned:
		w.before, w.survivor, w.stopping, w.goneAt = old.before, old.survivor, old.stopping, old.goneAt
	default:
		w.before, w.survivor, w.goneAt = old.ref.Generation, old.asked, old.goneAt
		if old.asked {
			w.stopping = old.goneAt.Sub(old.stopFrom)
		}
	}
	return w
}

func (t *turn) portFound(in PortFound) {
	_, w := t.s.find(in.Worker)
	if w == nil || w.phase != planned || in.Address == "" {
		return
	}
	w.address = in.Address
	if w.join != nil {
		w.join.next = t.now
	}
}

// run starts the process of a member that this agent has joined for.
func (t *turn) run(j *job, m events.LaunchMember) {
	w := j.lives[m.Place.Slot]
	if w == nil || w.phase != planned || w.ref.Incarnation != m.Incarnation {
		return
	}
	w.join = nil
	w.ref.Generation, w.rank, w.world = j.launch.Generation, m.Rank, j.launch.World
	w.trace = t.startTrace(j)
	if !w.goneAt.IsZero() {
		w.rejoining = t.now.Sub(w.goneAt)
	} else {
		w.rejoining = time.Duration(0)
	}
	t.start(j, w, m)
}
