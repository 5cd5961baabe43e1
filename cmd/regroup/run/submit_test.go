package run

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/golden"
)

func run(t *testing.T, w commandtest.World, stdin string, args ...string) commandtest.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return w.Run(ctx, stdin, func(e command.Env) []*cobra.Command {
		return []*cobra.Command{SubmitCommand(e, &boot.Config{StateDir: t.TempDir()})}
	}, append([]string{"submit"}, args...)...)
}

// registry accepts every job but those that are named refused.
func registry(w commandtest.World, got *[]spec.Job) {
	w.Answer(func(e events.Event) {
		jobSpec := e.Body.(events.JobSubmit).Spec
		*got = append(*got, jobSpec)
		job := ident.JobIDFrom(jobSpec.Name, e.Source, e.ID)
		if jobSpec.Name == "refused" {
			w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobRejected{
				Job: job, Command: e.ID,
				Errors: []spec.FieldError{{Path: "name", Message: "is refused"}, {Path: "workers.max", Message: "is too many"}},
			}})
			return
		}
		w.Publish(events.Event{Entity: string(job), Cause: e.ID, Body: events.JobSubmitted{Job: job, Spec: jobSpec}})
	})
}

const job = "name: cifar\ncommand: [python, train.py]\nworkers: {min: 2, max: 4}\n"

func TestSubmit(t *testing.T) {
	w := commandtest.New(t)
	var got []spec.Job
	registry(w, &got)
	w.Put(events.BucketNodes, "a", events.NodeView{Node: "a", State: events.NodeStateReady, Slots: 4})
	const elsewhere = "regroup: workers run on a in the folder, as the user and with the environment of the agent there, not of this command (the agent of a is not on this machine, or of another user or state folder); --workdir and --env change that\n"
	if o := run(t, w, job, "-f", "-"); o.Exit != 0 || !strings.HasPrefix(o.Out, "cifar-") || len(o.Out) != len("cifar-7f3a\n") || o.Err != elsewhere {
		t.Errorf("from a file: %+v", o)
	}
	if o := run(t, w, "", "--workers", "2:4", "--name", "cifar", "-o", "json", "--", "python", "train.py"); o.Exit != 0 || !strings.HasPrefix(o.Out, "{\n  \"job\": \"cifar-") {
		t.Errorf("from flags: %+v", o)
	}
	if o := run(t, w, job, "-f", "-", "--name", "lr-1", "--env", "LR=0.1"); o.Exit != 0 || len(got) != 3 || got[2].Name != "lr-1" || got[2].Env["LR"] != "0.1" || got[2].Workers.Max != 4 {
		t.Errorf("a file and flags: %+v, %+v", o, got)
	}
	got = got[:2]
	want := spec.Job{Name: "cifar", Command: []string{"python", "train.py"}, Workers: spec.Workers{Min: 2, Max: 4}}
	if len(got) != 2 || !reflect.DeepEqual(got[0], want) || !reflect.DeepEqual(got[1], want) {
		t.Errorf("submitted %+v, want twice %+v", got, want)
	}
}

// TestNoQueue: what would wait is not submitted, and neither is what no scheduler would place.
func TestNoQueue(t *testing.T) {
	w := commandtest.New(t)
	var got []spec.Job
	registry(w, &got)
	w.Put(events.BucketNodes, "a", events.NodeView{Node: "a", State: events.NodeStateReady, Slots: 4})
	if o := run(t, w, job, "-f", "-", "--no-queue"); o.Exit != exitcode.NoRoom || !strings.Contains(o.Err, "nothing is submitted: cifar would start at once") || !strings.Contains(o.Err, "No scheduler answers") {
		t.Errorf("without a scheduler: %+v", o)
	}
	w.Answering(events.ProgressAnswer{}, events.ServiceNames()...)
	if o := run(t, w, strings.Replace(job, "min: 2, max: 4", "min: 5, max: 5", 1), "-f", "-", "--no-queue"); o.Exit != exitcode.NoRoom || o.Out != "" || !strings.Contains(o.Err, "nothing is submitted: cifar would wait: it needs 5 slots, more than there are") {
		t.Errorf("too large: %+v", o)
	}
	if len(got) != 0 {
		t.Errorf("submitted %+v", got)
	}
	if o := run(t, w, job, "-f", "-", "--no-queue"); o.Exit != 0 || len(got) != 1 {
		t.Errorf("there is room: %+v", o)
	}
}

func TestRefusals(t *testing.T) {
	w := commandtest.New(t)
	var got []spec.Job
	registry(w, &got)
	w.Put(events.BucketNodes, "a", events.NodeView{Node: "a", State: events.NodeStateReady, Slots: 4})
	var b strings.Builder
	for _, c := range []struct {
		stdin string
		args  []string
	}{
		{strings.Replace(job, "max", "mx", 1), []string{"-f", "-"}},
		{strings.Replace(job, "max", "mx", 1), []string{"-f", "-", "-o", "json"}},
		{strings.Replace(job, "cifar", "refused", 1), []string{"-f", "-"}},
		{strings.Replace(job, "cifar", "refused", 1), []string{"-f", "-", "-o", "json"}},
		{job, []string{"-f", "-", "--workers", "4:2", "--env", "A"}},
		{job, []string{"-f", "-", "--nnodes", "2"}},
		{job, []string{"-f", "-", "--", "python"}},
		{"", []string{"--workers", "4:2", "--env", "A"}},
		{"", []string{"-f", "nowhere.yaml"}},
		{"", []string{"--worker", "4", "--", "x"}},
	} {
		o := run(t, w, c.stdin, c.args...)
		if o.Exit != 2 {
			t.Errorf("%q: exit %d, want 2", c.args, o.Exit)
		}
		b.WriteString("$ regroup submit " + strings.Join(c.args, " ") + "\n" + o.Out + o.Err)
	}
	golden.Compare(t, "testdata/refusals.txt", b.String())
}
