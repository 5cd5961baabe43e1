package gateway_test

import (
	"bufio"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/golden"
)

// series returns the values of /metrics whose labels are those of a job.
func (w *world) series(job string) map[string]float64 {
	w.Helper()
	text := string(w.get("/metrics").body)
	problems, err := promlint.New(strings.NewReader(text + "\n")).Lint()
	if err != nil || len(problems) > 0 {
		w.Errorf("%v %v", err, problems)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), `{job="`+job+`"} `)
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			all[name] = v
		}
	}
	return all
}

// described is what a collector says of a series.
var described = regexp.MustCompile(`^Desc\{fqName: "([a-z_]+)", help: ".*", constLabels: \{\}, variableLabels: \{([a-z,]*)\}\}$`)

// TestSeriesAreWrittenDown, with their labels, for the checks of what reads them (deploy/grafana).
func TestSeriesAreWrittenDown(t *testing.T) {
	found := make(chan *prometheus.Desc, 200) // more than there are
	bare(t, nil).gateway.Registry().Describe(found)
	close(found)
	var lines []string
	for d := range found {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("what is this? %s", d)
		}
		labels := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		if !strings.HasSuffix(m[1], "_duration_seconds") {
			lines = append(lines, strings.Join(append([]string{m[1]}, labels...), " "))
			continue
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} { // of a histogram
			lines = append(lines, strings.Join(append([]string{m[1] + part}, labels...), " "))
		}
	}
	slices.Sort(lines)
	golden.Compare(t, "testdata/metrics.txt", strings.Join(lines, "\n")+"\n")
}

// TestRedundancyOfAJob: ages grow while nothing is reported, and what is unknown has no series.
func TestRedundancyOfAJob(t *testing.T) {
	w := bare(t, nil)
	const commit, report, losses, nodes, checkpoint = "regroup_job_commit_age_seconds", "regroup_job_redundancy_report_age_seconds", "regroup_job_losses_survived", "regroup_job_node_losses_survived", "regroup_job_checkpoint_age_seconds"
	v := events.JobView{Job: "kept-0001", State: events.JobStateRunning, Submitted: time.Now(), Generation: 1, Step: 5}
	w.put(events.BucketJobs, string(v.Job), v)
	w.eventually("the job is there", func() bool { return w.series("kept-0001")["regroup_job_step"] == 5 })
	all := w.series("kept-0001")
	for _, name := range []string{commit, report, losses, nodes, checkpoint} {
		if value, ok := all[name]; ok {
			t.Errorf("%s is %g before anything was reported", name, value)
		}
	}
	v.Redundancy = &events.Redundancy{
		Generation: 1, ReportedAt: time.Now().Add(-time.Minute), Commit: tables.Commit{Generation: 1, Step: 4}, CommittedAt: time.Now().Add(-time.Hour), Losses: 2, NodeLosses: 1,
	}
	w.put(events.BucketJobs, string(v.Job), v)
	w.eventually("what is stored", func() bool { return w.series("kept-0001")[losses] == 2 })
	all = w.series("kept-0001")
	if _, ok := all[checkpoint]; ok || all[nodes] != 1 || all[commit] < 3600 || all[commit] > 3700 || all[report] < 60 || all[report] > 160 {
		t.Errorf("%v", all)
	}
	data, err := bodies.Encode(events.Progress{Job: v.Job, Generation: 1, Step: 6, Redundancy: &events.RedundancyReport{
		Commit: tables.Commit{Generation: 1, Step: 5}, CommitAgeMS: new(2000.0), Checkpoint: &tables.Commit{Generation: 1, Step: 3}, CheckpointAgeMS: new(9000.0),
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("what was heard since", func() bool {
		if err := w.ports.Signals.Send(events.ProgressSubject(v.Job), data); err != nil {
			t.Fatal(err)
		}
		all = w.series("kept-0001")
		return all[commit] < 3600
	})
	if n, ok := all[losses]; !ok || n != 0 || all[nodes] != 0 || all[commit] < 2 || all[checkpoint] < 9 || all[report] > 60 {
		t.Errorf("%v", all)
	}
	v.Generation = 2 // which has reported nothing yet
	w.put(events.BucketJobs, string(v.Job), v)
	w.eventually("the next generation", func() bool { return w.series("kept-0001")["regroup_job_generation"] == 2 })
	all = w.series("kept-0001")
	if _, ok := all[losses]; ok || all[commit] < 2 {
		t.Errorf("%v", all)
	}
}
