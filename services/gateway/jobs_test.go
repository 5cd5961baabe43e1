package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/services/gateway"
)

const job = `{"name": "x", "command": ["true"], "workers": {"min": 1, "max": 2}}`

func (w *world) submit(body string, headers ...string) gateway.Submitted {
	w.Helper()
	a := w.do("POST", "/api/v1/jobs", body, headers...)
	if a.status != http.StatusCreated {
		w.Fatalf("%d %s", a.status, a.body)
	}
	var s gateway.Submitted
	a.into(w, &s)
	return s
}

// TestALifeOfAJob takes a job through every request that changes it.
func TestALifeOfAJob(t *testing.T) {
	w := start(t)
	a := w.do("POST", "/api/v1/jobs", job)
	var s gateway.Submitted
	a.into(t, &s)
	at := a.header.Get("Location")
	if a.status != http.StatusCreated || s.Job == "" || at != "/api/v1/jobs/"+string(s.Job) || s.Spec.Stop.Signal != "SIGTERM" {
		t.Fatalf("%d %s %s", a.status, at, a.body)
	}
	w.eventually("the job is there", func() bool { return w.get(at).status == http.StatusOK })
	var v struct {
		State   events.JobState `json:"state"`
		Workers []struct{}      `json:"workers"`
		Spec    struct {
			Workers struct{ Min, Max int }
		} `json:"spec"`
	}
	one := w.get(at)
	one.into(t, &v)
	if v.State != events.JobStateWaiting || v.Workers == nil {
		t.Errorf("%s", one.body)
	}
	tag := one.header.Get("ETag")
	if again := w.get(at, "If-None-Match: "+tag); tag == "" || (again.status != http.StatusNotModified && again.header.Get("ETag") == tag) {
		t.Errorf("with its tag %s the job is %d", tag, again.status)
	}
	if late := w.do("PATCH", at, `{"workers": {"min": 1, "max": 3}}`, `If-Match: "0-0"`); late.status != http.StatusPreconditionFailed {
		t.Errorf("changed after another one: %d %s", late.status, late.body)
	}
	a = w.do("PATCH", at, `{"workers": {"min": 1, "max": 3}}`)
	w.eventually("it is scaled", func() bool {
		w.get(at).into(t, &v)
		return v.Spec.Workers.Max == 3
	})
	if a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PATCH", at, `{"workers": {"min": 3, "max": 1}}`); a.status != http.StatusUnprocessableEntity || len(a.problem(t).Errors) == 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("DELETE", at, ""); a.status != http.StatusConflict {
		t.Errorf("a job that has not ended is removed: %d %s", a.status, a.body)
	}
	if a := w.do("POST", at+"/stop", `{"reason": "enough"}`); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.eventually("it is stopped", func() bool {
		w.get(at).into(t, &v)
		return v.State == events.JobStateStopped
	})
	if a := w.do("DELETE", at, ""); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.eventually("it is gone", func() bool { return w.get(at).status == http.StatusNotFound })
	facts := w.get(at+"/events", "Accept: application/x-ndjson")
	if n := strings.Count(string(facts.body), "\n") + 1; n < 4 || !strings.Contains(string(facts.body), "dev.regroup.job.removed.v1") {
		t.Errorf("%d facts: %s", n, facts.body)
	}
}

// TestSubmitsAreIdempotent repeats a request with and without its key.
func TestSubmitsAreIdempotent(t *testing.T) {
	w := start(t)
	first := w.submit(job, "Idempotency-Key: k1")
	w.eventually("the job is there", func() bool { return w.get("/api/v1/jobs/"+string(first.Job)).status == http.StatusOK })
	a := w.do("POST", "/api/v1/jobs", job, "Idempotency-Key: k1")
	var again gateway.Submitted
	a.into(t, &again)
	if a.status != http.StatusOK || again.Job != first.Job || !again.Repeat {
		t.Errorf("%d %s, want %s again", a.status, a.body, first.Job)
	}
	if a := w.do("POST", "/api/v1/jobs", strings.Replace(job, "true", "false", 1), "Idempotency-Key: k1"); a.status != http.StatusUnprocessableEntity || a.problem(t).Errors[0].Path != "Idempotency-Key" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if other := w.submit(job); other.Job == first.Job {
		t.Errorf("without a key it is %s too", other.Job)
	}
	var list gateway.JobList
	w.eventually("two jobs", func() bool {
		w.get("/api/v1/jobs?state=active&q=x-").into(t, &list)
		return len(list.Jobs) == 2
	})
	var rows gateway.JobRows
	if w.get("/api/v1/job-rows?state=waiting").into(t, &rows); len(rows.Jobs) != 2 || rows.Jobs[0].Workers.Max != 2 || rows.Jobs[0].Command[0] != "true" {
		t.Errorf("%+v", rows)
	}
	w.get("/api/v1/jobs?limit=1").into(t, &list)
	if len(list.Jobs) != 1 || list.More != 1 {
		t.Errorf("of two with limit 1: %d, and %d more", len(list.Jobs), list.More)
	}
}

// TestMultiplesOfWorkers: a job that trains with a multiple of 3 would start with one, and is
// scaled to nothing else.
func TestMultiplesOfWorkers(t *testing.T) {
	w := start(t)
	w.node("node-a")
	const pairs = `{"name": "x", "command": ["true"], "workers": {"min": 3, "max": 9}, "elastic": {"multipleOf": 3}}`
	var plan gateway.Submitted
	if w.do("POST", "/api/v1/jobs?dryRun=true", pairs).into(t, &plan); !strings.HasPrefix(plan.Plan, "x would start at once with 3 of 3 to 9 workers: node-a 3\n") || plan.Fits == nil || !*plan.Fits || plan.Free != 4 || plan.Job != "" || len(plan.Forecast.Places) != 3 {
		t.Errorf("%+v", plan)
	}
	at := "/api/v1/jobs/" + string(w.submit(pairs).Job)
	w.eventually("the job is there", func() bool { return w.get(at).status == http.StatusOK })
	a := w.do("PATCH", at, `{"workers": {"min": 3, "max": 8}}`)
	if bad := a.problem(t).Errors; a.status != http.StatusUnprocessableEntity || len(bad) != 1 || bad[0].String() != "workers.max: is 8, must be a multiple of elastic.multipleOf (3): write 6 or 9" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PATCH", at, `{"workers": {"min": 3, "max": 6}}`); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestPlanOfAJob: a dry run says what regroup plan says, and submits nothing.
func TestPlanOfAJob(t *testing.T) {
	w := start(t)
	w.node("node-a")
	for body, want := range map[string]string{
		`{"name": "x", "command": ["true"], "workers": {"min": 5, "max": 5}}`:                                    "x would wait: it needs 5 slots, more than there are: 4 free of 4 on 1 node.\nIt would not start on these nodes, whatever ends.",
		`{"name": "x", "command": ["true"], "rendezvous": {"nodes": {"min": 1, "max": 2}, "workersPerNode": 1}}`: "its nodes come by themselves: no scheduler places its workers",
	} {
		var got gateway.Submitted
		w.do("POST", "/api/v1/jobs?dryRun=1", body).into(t, &got)
		if !strings.HasPrefix(got.Plan, want) || got.Fits == nil || *got.Fits || got.Job != "" {
			t.Errorf("%s: %+v, want %q", body, got, want)
		}
	}
	var list gateway.JobList
	if w.get("/api/v1/jobs").into(t, &list); len(list.Jobs) > 0 {
		t.Errorf("a plan has submitted %+v", list.Jobs)
	}
}

// TestRefusalsOfSubmits name every field.
func TestRefusalsOfSubmits(t *testing.T) {
	w := start(t)
	a := w.do("POST", "/api/v1/jobs", `{"name": "X y", "comand": ["true"], "workers": {"min": 0, "max": 2}}`)
	p := a.problem(t)
	paths := ""
	for _, f := range p.Errors {
		paths += f.Path + " "
	}
	if a.status != http.StatusUnprocessableEntity || p.Code != errcode.Invalid || !strings.Contains(paths, "name") || !strings.Contains(paths, "comand") || !strings.Contains(paths, "workers.min") {
		t.Errorf("%d %s", a.status, a.body)
	}
	for path, want := range map[string]int{
		"/api/v1/jobs?dryRun=maybe": http.StatusBadRequest, "/api/v1/jobs?dryRun=1": http.StatusOK,
	} {
		if a := w.do("POST", path, job); a.status != want {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := w.do("POST", "/api/v1/jobs", job, "Content-Type: image/png"); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("POST", "/api/v1/jobs", "{"+strings.Repeat(" ", 2<<20)); a.status != http.StatusRequestEntityTooLarge || a.problem(t).Code != errcode.TooLarge {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/api/v1/jobs?state=runnin"); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "running") {
		t.Errorf("%d %s", a.status, a.body)
	}
	var list gateway.JobList
	if w.get("/api/v1/jobs").into(t, &list); len(list.Jobs) != 0 {
		t.Errorf("refused requests have made %d jobs", len(list.Jobs))
	}
}
