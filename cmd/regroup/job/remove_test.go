package job

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

// removing is a system with a registry that stops and removes jobs, and records the requests.
func removing(t *testing.T) (w commandtest.World, asked *[]string) {
	w, asked = commandtest.New(t), new([]string)
	for i, v := range []events.JobView{
		{Job: "old-0001", State: events.JobStateFailed, Ended: clustertest.Now.Add(-48 * time.Hour)},
		{Job: "new-0001", State: events.JobStateSucceeded, Ended: clustertest.Now.Add(-time.Hour)},
		{Job: "live-0001", State: events.JobStateRunning},
	} {
		v.Submitted = clustertest.Now.Add(time.Duration(i-100) * time.Hour)
		w.Job(v)
	}
	w.Answer(func(e events.Event) {
		*asked = append(*asked, e.Body.Type().Kind()+" "+e.Entity)
		job := ident.JobID(e.Entity)
		switch e.Body.(type) {
		case events.JobStop:
			w.Publish(events.Event{Entity: e.Entity, Cause: e.ID, Body: events.JobStopping{Job: job}})
			w.Publish(events.Event{Entity: e.Entity, Body: events.JobStopped{JobEnd: events.JobEnd{Job: job}}})
		case events.JobRemove:
			w.Publish(events.Event{Entity: e.Entity, Cause: e.ID, Body: events.JobRemoved{Job: job}})
		}
	})
	return w, asked
}

func TestRemove(t *testing.T) {
	for line, c := range map[string]struct {
		exit    int
		asked   string
		message string
	}{
		"rm old":                         {0, "remove old-0001", "old-0001 is removed\n"},
		"rm old new":                     {0, "remove old-0001, remove new-0001", "old-0001 is removed\nnew-0001 is removed\n"},
		"rm --ended":                     {0, "remove new-0001, remove old-0001", "new-0001 is removed\nold-0001 is removed\n2 jobs removed\n"},
		"rm --ended --older-than 24h":    {0, "remove old-0001", "old-0001 is removed\n1 job removed\n"},
		"rm --ended --older-than 96h":    {0, "", "0 jobs removed\n"},
		"rm live":                        {2, "", "live-0001 is running: stop it first, or kill it with --force; nothing is removed\n"},
		"rm old live":                    {2, "", "live-0001 is running: stop it first, or kill it with --force; nothing is removed\n"},
		"rm live --force":                {0, "stop live-0001, remove live-0001", "live-0001 is removed\n"},
		"rm":                             {2, "", "name the jobs to remove, or give --ended (see regroup rm --help)\n"},
		"rm old --ended":                 {2, "", "both jobs and --ended are given\n"},
		"rm old --older-than 1h":         {2, "", "--older-than is for --ended\n"},
		"rm odl-0001":                    {3, "", "there is no job \"odl-0001\": did you mean \"old-0001\"?\n"},
		"rm --ended --force --timeout 9": {2, "", "--timeout \"9\": write 30s, 5m or 1h (see regroup rm --help)\n"},
	} {
		t.Run(line, func(t *testing.T) {
			w, asked := removing(t)
			o := run(t, w, strings.Split(line, " ")...)
			if got := strings.Join(*asked, ", "); o.Exit != c.exit || o.Err != c.message || got != c.asked || o.Out != "" {
				t.Errorf("%+v, asked %q; want exit %d, %q, %q", o, got, c.exit, c.asked, c.message)
			}
		})
	}
}

// TestATableIsLimited checks that jobs that have not ended are always listed, that omissions are
// reported, and that programs get all jobs.
func TestATableIsLimited(t *testing.T) {
	w := commandtest.New(t)
	for i := range 30 {
		v := events.JobView{Job: ident.JobID(fmt.Sprintf("job-%04d", i)), State: events.JobStateSucceeded, Submitted: clustertest.Now.Add(time.Duration(i-100) * time.Second)}
		if i < 2 {
			v.State = events.JobStateRunning
		}
		w.Job(v)
	}
	w.Answering(events.ProgressAnswer{}, events.ServiceRegistry)
	for _, c := range []struct {
		line, first, last string
		rows              int
		message           string
	}{
		{"ls", "job-0029", "job-0000", 20, "10 older jobs left out: regroup ls --all\n"},
		{"ls --limit 3", "job-0029", "job-0000", 3, "27 older jobs left out: regroup ls --all\n"},
		{"ls --limit 1", "job-0001", "job-0001", 1, "29 older jobs left out: regroup ls --all\n"},
		{"ls --all", "job-0029", "job-0000", 30, ""},
		{"ls --limit 0 -o wide", "job-0029", "job-0000", 30, ""},
		{"ls --running", "job-0001", "job-0000", 2, ""},
		{"ls -o name", "job-0029", "job-0000", 30, ""},
		{"ls -o name --limit 4", "job-0029", "job-0000", 4, "26 older jobs left out: regroup ls --all\n"},
	} {
		o := run(t, w, strings.Split(c.line, " ")...)
		rows := strings.Split(strings.TrimSpace(strings.TrimPrefix(o.Out, "JOB")), "\n")
		if !strings.HasPrefix(rows[0], "job") {
			rows = rows[1:]
		}
		if o.Exit != 0 || o.Err != c.message || len(rows) != c.rows || !strings.HasPrefix(rows[0], c.first) || !strings.HasPrefix(rows[len(rows)-1], c.last) {
			t.Errorf("%s: %d rows from %q to %q, says %q", c.line, len(rows), rows[0], rows[len(rows)-1], o.Err)
		}
	}
}
