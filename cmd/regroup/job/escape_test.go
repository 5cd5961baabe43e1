package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/goccy/go-yaml"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// evil clears a screen, sets its title, and turns the writing around.
const evil = "\x1b[2J\x1b]0;mine\a\u009b31m\u202e\x7f"

// poison appends it to every text but those that decide what is shown.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.String:
		switch v.Interface().(type) {
		case ident.JobID, events.JobState, tables.WorkerState, spec.Recovery, events.CauseKind, events.NodeState, ident.Incarnation:
		default:
			v.SetString(v.String() + evil)
		}
	}
}

func obeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Cf, r)
}

// TestNoTextFromOutsideReachesTheTerminal covers all commands and formats.
func TestNoTextFromOutsideReachesTheTerminal(t *testing.T) {
	w := commandtest.New(t)
	v := running()
	v.Spec = v.Spec.WithDefaults()
	v.Reason, v.Spec.Env = "waits", map[string]string{"A": "b"}
	v.FirstError = &tables.WorkerView{WorkerRef: v.Workers[0].WorkerRef, Detail: "exit", Lines: []string{"Traceback", "two\nlines"}}
	v.Slowest = &events.Straggler{Rank: 0, Share: 0.5}
	poison(reflect.ValueOf(&v).Elem())
	w.Job(v)
	ended := v
	ended.Job, ended.State, ended.Ended = "mnist-0002", events.JobStateFailed, clustertest.Now
	w.Job(ended)
	for _, row := range events.Catalog() {
		if row.Class != events.ClassFact {
			continue
		}
		b := reflect.New(reflect.TypeOf(row.New())).Elem()
		poison(b)
		w.Publish(events.Event{Entity: string(mnist), Body: b.Interface().(events.Body)})
	}
	w.Print(mnist, place("node-a", 0), "loss 1\r loss 2 "+evil+"\nnext\n")
	for _, line := range []string{
		"ls", "ls -o wide", "ls -o json", "ls -o yaml", "ls -o name", "status mnist-7f3a", "status mnist-7f3a -o json", "status mnist-7f3a -o yaml",
		"status mnist-0002", "events mnist-7f3a", "events mnist-7f3a -o json", "events --all", "logs mnist-7f3a", "logs mnist-7f3a -o jsonl",
		"timeline mnist-7f3a", "timeline mnist-7f3a -o yaml", "explain mnist-7f3a", "explain mnist-7f3a -o json", "trace mnist-7f3a",
		"trace mnist-7f3a -o yaml", "stop nobody" + evil,
	} {
		got := w.Run(t.Context(), "", Commands, strings.Split(line, " ")...)
		if got.Exit != 0 && !strings.HasPrefix(line, "stop") {
			t.Errorf("%s: %v", line, got.Failure)
		}
		if i := strings.IndexFunc(got.Out, obeyed); i >= 0 {
			t.Errorf("%s: out has %q", line, got.Out[max(0, i-30):min(len(got.Out), i+30)])
		}
		if i := strings.IndexFunc(got.Err, obeyed); i >= 0 && !strings.HasPrefix(line, "stop") {
			t.Errorf("%s: err has %q", line, got.Err[max(0, i-30):min(len(got.Err), i+30)])
		}
		var view events.JobView
		switch {
		case line == "status mnist-7f3a -o yaml":
			var any map[string]any
			if err := yaml.Unmarshal([]byte(got.Out), &any); err != nil || any["reason"] != v.Reason {
				t.Errorf("%s: the reason is %q, %v", line, any["reason"], err)
			}
		case line == "status mnist-7f3a -o json":
			if err := json.Unmarshal([]byte(got.Out), &view); err != nil || view.Reason != v.Reason {
				t.Errorf("%s: the reason is %q, %v", line, view.Reason, err)
			}
		case line == "logs mnist-7f3a":
			if n := strings.Count(got.Out, "\n"); n != 2 {
				t.Errorf("a bar and a line are %d lines: %q", n, got.Out)
			}
		}
	}
}

// TestAMalformedMessageIsPassedOver checks that a malformed message does not end a reader; it is
// reported once, and the rest is shown.
func TestAMalformedMessageIsPassedOver(t *testing.T) {
	w := commandtest.New(t)
	w.Job(running())
	w.Publish(events.Event{Entity: string(mnist), Body: events.JobFinishing{Job: mnist}})
	for _, data := range []string{"\x00\xff", "{", `{"specversion":"1.0","id":"1","source":"/x","type":"dev.regroup.job.finishing.v1","subject":"` + string(mnist) + `","data":[]}`} {
		subject := events.FactSubject(events.JobFinishing{}.Type(), string(mnist))
		if _, err := w.Ports.Log.Publish(t.Context(), broker.Message{Subject: subject, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	w.Publish(events.Event{Entity: string(mnist), Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: mnist, Reason: "done"}}})
	for _, line := range []string{"events mnist-7f3a", "events --all", "events mnist-7f3a -o json"} {
		got := w.Run(t.Context(), "", Commands, strings.Split(line, " ")...)
		if got.Exit != 0 || strings.Count(got.Out, "\n") != 2 || strings.Count(got.Err, "passed over") != 3 {
			t.Errorf("%s: exit %d\n%s%s", line, got.Exit, got.Out, got.Err)
		}
	}
}
