package job

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

func TestStopAndScale(t *testing.T) {
	w := world(t)
	var got []events.Body
	w.Answer(func(e events.Event) {
		got = append(got, e.Body)
		switch b := e.Body.(type) {
		case events.JobScale:
			if b.Workers.Max == 99 { // its document was removed meanwhile
				w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobRejected{
					Job: b.Job, Command: e.ID, Code: errcode.NotFound,
					Errors: []spec.FieldError{{Path: "job", Message: "there is no job " + string(b.Job)}},
				}})
				return
			}
			if b.Workers.Max > 100 {
				w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobRejected{
					Job: b.Job, Command: e.ID,
					Errors: []spec.FieldError{{Path: "workers.max", Message: "at most 100 are allowed"}},
				}})
				return
			}
			w.Publish(events.Event{Entity: string(b.Job), Cause: "another command", Body: events.JobScaled{Job: b.Job}})
			w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobScaled{Job: b.Job, Workers: b.Workers}})
		case events.JobStop:
			w.Publish(events.Event{Entity: string(b.Job), Cause: e.ID, Body: events.JobStopping{Job: b.Job, Reason: b.Reason}})
		}
	})
	if o := run(t, w, "scale", "mnist", "2:8"); o.Exit != 0 || o.Err != "mnist-7f3a wants 2-8 workers\n" || o.Out != "" {
		t.Errorf("scale: %+v", o)
	}
	if o := run(t, w, "scale", "mnist", "2:800"); o.Exit != 2 || !strings.Contains(o.Err, "workers.max: at most 100") {
		t.Errorf("refused scale: %+v", o)
	}
	if o := run(t, w, "scale", "mnist", "2:99"); o.Exit != 3 || !strings.Contains(o.Err, "job: there is no job mnist-7f3a") {
		t.Errorf("scale of nothing: %+v", o)
	}
	if o := run(t, w, "scale", "mnist", "1:2"); o.Exit != 0 { // unchanged: no service answers that
		t.Errorf("scale to what is: %+v", o)
	}
	if o := run(t, w, "stop", "mnist", "--now", "--reason", "wrong rate"); o.Exit != 0 || o.Err != "mnist-7f3a is stopping\n" {
		t.Errorf("stop: %+v", o)
	}
	if o := run(t, w, "cancel", "bert"); o.Exit != 0 || o.Err != "bert-0c21 has ended already: failed\n" {
		t.Errorf("stop of an ended job: %+v", o)
	}
	want := []events.Body{
		events.JobScale{Job: mnist, Workers: spec.Workers{Min: 2, Max: 8}},
		events.JobScale{Job: mnist, Workers: spec.Workers{Min: 2, Max: 800}},
		events.JobScale{Job: mnist, Workers: spec.Workers{Min: 2, Max: 99}},
		events.JobStop{Job: mnist, Now: true, Reason: "wrong rate"},
	}
	if len(got) != len(want) {
		t.Fatalf("commands %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("command %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestNobodyAnswers is in virtual time: on a busy machine the job would not be found within 20 ms.
func TestNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t)
		o := run(t, w, "stop", "mnist", "--timeout", "20ms")
		if o.Exit != 5 || !strings.Contains(o.Err, "no answer from the registry about mnist-7f3a in 20ms") {
			t.Errorf("%+v", o)
		}
	})
}

func TestLogs(t *testing.T) {
	w := commandtest.New(t)
	w.Job(running())
	w.PrintAs(mnist, tables.Member{Place: place("node-a", 0)}, 2, "epoch 0\nloss 0.4\n")
	w.Print(mnist, place("node-c", 0), "warming up\n")
	w.PrintAs(mnist, tables.Member{Place: place("node-a", 0), Rank: 0}, 2, "DEBUG loss 0.3\nloss 0.2\n")
	w.PrintAs(mnist, tables.Member{Place: place("node-a", 0), Rank: 4}, 3, `{"lines":7,"loss":0.1}`+"\n")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"all":     {nil, "[node-a r0 g2] epoch 0\n[node-a r0 g2] loss 0.4\n[node-c/0] warming up\n[node-a r0 g2] DEBUG loss 0.3\n[node-a r0 g2] loss 0.2\n[node-a r4 g3] {\"lines\":7,\"loss\":0.1}\n"},
		"raw":     {[]string{"-o", "raw", "-i", "^loss"}, "loss 0.4\nloss 0.2\n"},
		"exclude": {[]string{"-o", "raw", "-i", "loss", "-e", "DEBUG|lines"}, "loss 0.4\nloss 0.2\n"},
		"rank":    {[]string{"-o", "raw", "--rank", "1-2,4"}, "{\"lines\":7,\"loss\":0.1}\n"},
		"node":    {[]string{"-o", "raw", "--node", "node-c"}, "warming up\n"},
		"gen":     {[]string{"-o", "raw", "--gen", "2", "--tail", "2"}, "DEBUG loss 0.3\nloss 0.2\n"},
		"tail 0":  {[]string{"--tail", "0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if o := run(t, w, append([]string{"logs", "mnist"}, c.args...)...); o.Exit != 0 || o.Out != c.want {
				t.Errorf("exit %d %s, got\n%s\nwant\n%s", o.Exit, o.Err, o.Out, c.want)
			}
		})
	}
	if o := run(t, w, "logs", "mnist", "--tail", "1", "-o", "jsonl"); !strings.Contains(o.Out, `"generation":3,"stream":"stderr","text":"{`) || !strings.Contains(o.Out, `"rank":4,`) {
		t.Errorf("jsonl: %s", o.Out)
	}
}

// TestNoRankIsNoNumber checks all formats for programs.
func TestNoRankIsNoNumber(t *testing.T) {
	w := world(t)
	publish(w)
	w.Print(mnist, place("node-x", 0), "warming up\n")
	w.Publish(events.Event{Entity: string(mnist), Body: events.WorkerStarted{WorkerRef: tables.WorkerRef{Job: mnist, Place: place("node-x", 0), Attempt: 1, PID: 7}}})
	for _, line := range []string{"logs mnist -o jsonl", "timeline mnist -o json", "status mnist -o json", "ls -o json"} {
		o := run(t, w, strings.Split(line, " ")...)
		if text := strings.ReplaceAll(o.Out, " ", ""); !strings.Contains(text, `"rank":null`) || strings.Contains(text, `"rank":-`) {
			t.Errorf("%s: %+v", line, o)
		}
	}
}

// TestFollowedLogsEndWithTheJob checks that the last output is not lost.
func TestFollowedLogsEndWithTheJob(t *testing.T) {
	w := world(t)
	w.Print(mnist, place("node-a", 0), "stored 1\nstored 2\n")
	for range 3 {
		ended := make(chan commandtest.Output)
		go func() { ended <- run(t, w, "logs", "mnist", "-f", "-o", "raw", "--tail", "1") }()
		w.Print(mnist, place("node-a", 0), "last words\n")
		w.Publish(events.Event{Entity: string(mnist), Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: mnist, Reason: "done"}}})
		o := <-ended
		// How much was stored when the reader started is undetermined; the last lines always
		// appear.
		if o.Exit != 0 || !strings.HasSuffix(o.Out, "last words\n") {
			t.Fatalf("%+v", o)
		}
	}
}

// TestWatchingEndsWithAnInterrupt checks that Ctrl-C is success for a watching command.
func TestWatchingEndsWithAnInterrupt(t *testing.T) {
	w := world(t)
	publish(w)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan commandtest.Output)
	var seen writes
	env := w.Env("", &bytes.Buffer{}, &bytes.Buffer{})
	env.Out = &seen
	cmd := facts(env)
	cmd.SetArgs([]string{"--all", "-f"})
	go func() { ended <- commandtest.Output{Failure: cmd.ExecuteContext(ctx)} }()
	seen.await(t, 6) // one of the seven was published twice
	cancel(errors.New("interrupted"))
	if o := <-ended; o.Failure != nil {
		t.Errorf("got %v, want nothing", o.Failure)
	}
}
