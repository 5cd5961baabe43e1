package timeline

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/events/ident"
)

// leastSilence is the least time without a report that is drawn as not observed. Reports are stored
// every 5 s at most, less often for long jobs; see registry/job.StepEvery.
const leastSilence = 15 * time.Second

// sparse is the divisor that gives the interval between stored reports of a long job from its age;
// three of them may be missing.
const sparse = 2000 / 3

// observation is the newest report of a step of a job.
type observation struct {
	at         time.Time
	generation ident.Generation
	step       uint64
	stepTime   time.Duration // between the last two reports, for one step
	stepped    bool          // a step was reported at any time
}

// Silence returns the time without a report of a step after which nobody knows what a job does: it
// depends on its age and on how long its steps take. A job whose steps take a minute may say
// nothing for four.
func Silence(age, stepTime time.Duration) time.Duration {
	return max(leastSilence, age/sparse, 4*stepTime)
}

func (o observation) silence(start, now time.Time) time.Duration {
	return Silence(now.Sub(start), o.stepTime)
}

// reported applies a report of a step. If several steps were made since the one before, and nobody
// has heard of any for too long, it was not observed when they were made:
//
//	12:00:00 step 100   12:00:05 step 150   12:04:05 step 2550
//
// is not observed from 12:00:05 on. A single step that takes four minutes is training.
func (t *Timeline) reported(at time.Time, g ident.Generation, step uint64) {
	o := &t.observed
	if step == 0 {
		return
	}
	before := *o
	switch passed := at.Sub(before.at); {
	case before.generation != g || step < before.step || passed < 0: // another generation, or steps that are made again
		*o = observation{at: at, generation: g, step: step, stepTime: before.stepTime}
	case step == before.step:
		o.at = at
	default:
		if made := step - before.step; made > 1 && passed > before.silence(t.Start, at) {
			t.unobserved(before.at, at, t.Incarnations)
			for _, l := range t.Incarnations {
				if l.alive && l.Stretches[len(l.Stretches)-1].Doing == Unobserved {
					l.begin(Training, at)
				}
			}
			*o = observation{at: at, generation: g, step: step, stepTime: before.stepTime}
			break
		}
		*o = observation{at: at, generation: g, step: step, stepTime: passed / time.Duration(min(step-before.step, 1<<30))}
	}
	o.stepped = true
}

// sinceReported marks what nobody has observed at the end of a job that goes on, and calls the
// training of a program that has never reported a step what it is: a process that runs.
func (t *Timeline) sinceReported(now time.Time) {
	o := t.observed
	if !o.stepped {
		for _, l := range t.Incarnations {
			for i := range l.Stretches {
				if l.Stretches[i].Doing == Training {
					l.Stretches[i].Doing = Running
				}
			}
		}
		return
	}
	if !t.over && now.Sub(o.at) > o.silence(t.Start, now) {
		alive := slices.DeleteFunc(slices.Clone(t.Incarnations), func(l *Incarnation) bool { return !l.alive })
		t.unobserved(o.at, now, alive)
	}
}
