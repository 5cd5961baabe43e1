package gateway_test

import (
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
)

// TestLogsOfBars: a bar is its last state, and of one that goes on the newest, whatever the form;
// who follows gets each with a mark.
func TestLogsOfBars(t *testing.T) {
	w := bare(t, nil)
	v := w.job("j-0001")
	w.print("node-a", 0, 0, "begins\r\n 10%\r")
	w.print("node-b", 0, 1, " 5%\r")
	w.print("node-a", 0, 0, " 20%\r")
	const logs = "/api/v1/jobs/j-0001/logs"
	text := func(path string) string {
		t.Helper()
		return string(w.get(logs+path, "Accept: text/plain").body)
	}
	for path, want := range map[string]string{
		"":        "[node-a r0 g2] begins\n[node-b r1 g2]  5%\n[node-a r0 g2]  20%",
		"?tail=2": "[node-b r1 g2]  5%\n[node-a r0 g2]  20%",
		"?rank=0": "[node-a r0 g2] begins\n[node-a r0 g2]  20%",
	} {
		if got := text(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	lines := string(w.get(logs, "Accept: application/x-ndjson").body)
	if strings.Count(lines, "\n") != 2 || strings.Count(lines, `"open":true`) != 2 {
		t.Errorf("for programs:\n%s", lines)
	}
	s := w.stream(logs + "?follow=1&tail=10")
	next := func(want string, open bool) (id string) {
		t.Helper()
		i := s.next()
		if !strings.Contains(i.data, `"text":"`+want+`"`) || strings.Contains(i.data, `"open":true`) != open {
			t.Errorf("%+v, want %q and open: %t", i, want, open)
		}
		return i.id
	}
	next("begins", false)
	next(" 5%", true)
	at := next(" 20%", true)
	w.print("node-a", 0, 0, " 30%\r")
	next(" 30%", true)
	w.print("node-a", 0, 0, "\x1b[32m100%\n")
	if i := s.next(); !strings.Contains(i.data, `"text":"\u001b[32m100%"`) || strings.Contains(i.data, "open") {
		t.Errorf("%+v", i)
	}
	s.close()
	s = w.stream(logs+"?follow=1", "Last-Event-ID: "+at) // what was replaced meanwhile does not come
	if i := s.next(); !strings.Contains(i.data, "100%") {
		t.Errorf("resumed: %+v", i)
	}
	s.close()
	w.print("node-b", 0, 2, "after\n") // the place has another rank now
	if got := text("?rank=1"); got != "" {
		t.Errorf("what the line of another rank has replaced: %q", got)
	}
	v.State = events.JobStateFailed
	w.put(events.BucketJobs, "j-0001", v)
	// Text cannot replace a line: it has a state every 30 s, and the last one.
	w.eventually("the job has ended", func() bool {
		got := text("?follow=1&rank=0") // on a very slow machine with states between
		return strings.HasPrefix(got, "[node-a r0 g2] begins\n") && strings.HasSuffix(got, "\n[node-a r0 g2] \x1b[32m100%") && !strings.Contains(got, "r1")
	})
}
