package run

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/exitcode"
)

// TestPlan of jobs on two nodes with four slots each, of which another job has two of each.
func TestPlan(t *testing.T) {
	w := commandtest.New(t)
	for _, n := range []ident.NodeID{"node-a", "node-b"} {
		w.Put(events.BucketNodes, string(n), events.NodeView{Node: n, Incarnation: "A", State: events.NodeStateReady, Slots: 4})
	}
	four := spec.Workers{Min: 4, Max: 4}
	w.Put(events.BucketJobs, "bert-1a2b", events.JobView{Job: "bert-1a2b", State: events.JobStateRunning, Spec: spec.Job{Name: "bert", Command: []string{"x"}, Workers: four}})
	w.Put(events.BucketPlacements, events.PoolKey, events.PoolView{Jobs: map[ident.JobID]events.PlacementView{
		"bert-1a2b": {Workers: four, Places: ident.Places{{Node: "node-a", Slot: 0}, {Node: "node-a", Slot: 1}, {Node: "node-b", Slot: 0}, {Node: "node-b", Slot: 1}}},
	}})
	run := func(stdin string, args ...string) commandtest.Output {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return w.Run(ctx, stdin, func(e command.Env) []*cobra.Command { return []*cobra.Command{PlanCommand(e)} }, append([]string{"plan"}, args...)...)
	}
	const silent = "No scheduler answers: until one does nothing starts.\n"
	for name, c := range map[string]struct {
		stdin, want string
		args        []string
	}{
		"from a file": {job, "cifar would start at once with 4 of 2 to 4 workers: node-a 2, node-b 2\n" + silent, []string{"-f", "-"}},
		"it grows later": {
			"", "x would start at once with 4 of 3 to 6 workers: node-a 2, node-b 2\nIt has 4 of up to 6 workers: 0 free of 8 on 2 nodes.\n" + silent,
			[]string{"--name", "x", "--workers", "3:6", "--", "x"},
		},
		"it waits": {
			"", "x would wait: it needs 5 slots, 4 free of 8 on 2 nodes.\nIt would start when bert-1a2b ends.\n" + silent,
			[]string{"--name", "x", "--workers", "5", "--", "x"},
		},
		"never": {
			"", "x would wait: it needs 9 slots, more than there are: 4 free of 8 on 2 nodes.\nIt would not start on these nodes, whatever ends.\n" + silent,
			[]string{"--name", "x", "--workers", "9", "--", "x"},
		},
	} {
		code := 0
		if strings.Contains(c.want, "would wait") {
			code = exitcode.NoRoom
		}
		if o := run(c.stdin, c.args...); o.Exit != code || o.Out != c.want {
			t.Errorf("%s: exit %d, %s%s\nwant %s", name, o.Exit, o.Out, o.Err, c.want)
		}
	}
	if o := run(job, "-f", "-", "-o", "json"); o.Exit != 0 || !strings.Contains(o.Out, `"starts": true`) || !strings.Contains(o.Out, `"places": [`) || !strings.Contains(o.Out, `"silent": true`) {
		t.Errorf("as JSON: %+v", o)
	}
	for name, c := range map[string]struct {
		stdin, want string
		args        []string
	}{
		"a wrong file":       {strings.Replace(job, "max", "mx", 1), "workers.mx", []string{"-f", "-"}},
		"its own server":     {"", "--standalone: plan has no server of its own", []string{"--standalone", "--", "x"}},
		"nodes of their own": {"name: x\ncommand: [x]\nrendezvous: {nodes: {min: 1, max: 2}, workersPerNode: 1}\n", "no scheduler places its workers", []string{"-f", "-"}},
	} {
		if o := run(c.stdin, c.args...); o.Exit != 2 || !strings.Contains(o.Err, c.want) || o.Out != "" {
			t.Errorf("%s: %+v, want %s", name, o, c.want)
		}
	}
	w.Put(events.BucketJobs, "gpt-9f00", events.JobView{Job: "gpt-9f00", State: events.JobStateWaiting, Spec: spec.Job{Name: "gpt", Command: []string{"x"}, Workers: spec.Workers{Min: 6, Max: 6}}})
	if o := run(job, "-f", "-"); o.Exit != exitcode.NoRoom || o.Out != "cifar would wait: it needs 2 slots, would be number 2 of 2 in the queue behind gpt-9f00, which needs 6; 4 free of 8 on 2 nodes.\nIt would start when bert-1a2b ends.\n"+silent {
		t.Errorf("behind another job: %+v", o)
	}
	const both = "x would wait: it needs 8 slots, would be number 2 of 2 in the queue behind gpt-9f00, which needs 6; 4 free of 8 on 2 nodes.\nIt would start when 2 jobs have ended, if the oldest ends first.\n"
	if o := run("", "--name", "x", "--workers", "8", "--", "x"); o.Exit != exitcode.NoRoom || o.Out != both+silent {
		t.Errorf("behind another job, and after it: %+v", o)
	}
}
