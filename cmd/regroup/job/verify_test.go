package job

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
)

// TestVerify compares two trainings that are the same, and two that differ from a step on.
func TestVerify(t *testing.T) {
	w := commandtest.New(t)
	for job, steps := range map[ident.JobID][]string{
		"one-0001": {"aa", "bb", "cc"}, "same-0001": {"aa", "bb"}, "other-0001": {"aa", "b0", "c0"}, "none-0001": {},
	} {
		w.Job(events.JobView{Job: job, State: events.JobStateSucceeded})
		for i, hash := range steps {
			b := events.WorkerHashed{
				WorkerRef: tables.WorkerRef{Job: job, Place: place("node-a", 0)},
				StateHash: tables.StateHash{Step: 100 * uint64(i+1), Hash: hash},
				Tensors:   map[string]string{"fc.weight": hash, "fc.bias": "77", "fc.weight/exp_avg": hash + "1"},
				Dealt:     []tables.DealtSteps{{First: 100 * uint64(i), Last: 100*uint64(i) + 99, Generation: 1, Ranks: []int{0, 0, 1}, Again: new(uint64(i))}},
			}
			w.Publish(events.Event{Entity: string(job), Source: events.AgentSource("node-a", "01JD0000000000000000000000"), Body: b})
		}
	}
	var b strings.Builder
	for line, exit := range map[string]int{"verify one same": 0, "verify one other": 15, "verify one none": 3, "verify one": 2} {
		o := run(t, w, strings.Fields(line)...)
		if o.Exit != exit {
			t.Errorf("%s: %+v, want exit %d", line, o, exit)
		}
		if exit == 0 || exit == 15 {
			continue
		}
		if o.Out != "" || o.Err == "" {
			t.Errorf("%s: %+v", line, o)
		}
	}
	for _, line := range []string{"verify one same", "verify one other", "verify one other -o json"} {
		b.WriteString("$ regroup " + line + "\n" + run(t, w, strings.Fields(line)...).Out)
	}
	golden.Compare(t, "testdata/verify.txt", b.String())
}
