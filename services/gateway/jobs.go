package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/specfile"
	"github.com/regroup-io/regroup/services/cluster"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

// maxBody bounds the body of a request; that of a command is bounded by limits.Command.
var maxBody = int64(limits.Message.Max)

// Submitted answers a submit. With dryRun nothing was submitted: Job is empty.
type Submitted struct {
	Job      ident.JobID      `json:"job,omitempty"`
	Spec     spec.Job         `json:"spec"`               // with every default
	Plan     string           `json:"plan,omitempty"`     // dryRun: whether it would start now, in sentences as regroup plan prints them
	Fits     *bool            `json:"fits,omitempty"`     // dryRun: it would start at once
	Free     int              `json:"free,omitempty"`     // dryRun: slots that are free now
	Forecast *cluster.Planned `json:"forecast,omitempty"` // dryRun: as regroup plan -o json; absent = its nodes come by themselves
	Repeat   bool             `json:"repeat,omitempty"`   // the job of an earlier request with the same Idempotency-Key
}

// JobList is a list of jobs.
type JobList struct {
	Jobs []view.Job `json:"jobs"`
	More int        `json:"more"` // number of jobs that the parameter limit has left out
}

// JobDetail is one job.
type JobDetail struct {
	view.Job
	Goodput *float64 `json:"goodput"` // fraction of the observed time spent on steps that were kept; null = unknown
	// Goodput is an upper bound: not all lost steps are known.
	GoodputAtMost bool   `json:"goodput_at_most,omitempty"`
	Marks         []Mark `json:"marks"` // the times of its incidents and planned changes
}

func (g *Gateway) detail(v events.JobView) JobDetail {
	part, atMost := view.Goodput(v, g.Now())
	return JobDetail{view.JobOf(v), part, atMost, marks(v)}
}

// JobRow is a job in short, without its workers and its history.
type JobRow struct {
	Job        ident.JobID      `json:"job"`
	State      events.JobState  `json:"state"`
	Reason     string           `json:"reason,omitempty"`
	Command    []string         `json:"command"`
	Workers    spec.Workers     `json:"workers"`  // wanted
	Training   int              `json:"training"` // members of the newest generation that have not ended
	World      int              `json:"world"`    // members that it had when it was sealed; 0 = there was none
	Generation ident.Generation `json:"generation"`
	Step       uint64           `json:"step"`
	Incidents  int              `json:"incidents"` // that were not planned
	Submitted  time.Time        `json:"submitted"`
	Ended      time.Time        `json:"ended,omitzero"`
}

// JobRows is a list of jobs in short.
type JobRows struct {
	Jobs []JobRow `json:"jobs"`
	More int      `json:"more"` // jobs that limit has left out
}

// rowOf shortens a job.
func rowOf(v events.JobView) JobRow {
	return JobRow{
		Job: v.Job, State: v.State, Reason: v.Reason, Command: v.Spec.Command, Workers: v.Spec.Workers, Training: view.Members(v), World: view.LastWorld(v), Generation: v.Generation,
		Step: v.Step, Incidents: view.Unplanned(v), Submitted: v.Submitted, Ended: v.Ended,
	}
}

// Patch is a change of a job.
type Patch struct {
	Workers spec.Workers `json:"workers"`
}

// Stop is how a job ends.
type Stop struct {
	Reason string `json:"reason,omitempty"`
	Now    bool   `json:"now,omitempty"` // kill without grace
}

// Series are points of metrics by name: each is a list of seconds since 1970, value, generation,
// step.
type Series struct {
	Metrics map[string][]feed.Point `json:"metrics"`
}

func (g *Gateway) submit(w http.ResponseWriter, r *http.Request) error {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // "" counts as YAML, of which JSON is a part
	if !slices.Contains([]string{"", mediaJSON, mediaYAML, "application/x-yaml", "text/yaml"}, media) {
		return withStatus(http.StatusUnsupportedMediaType, wrong("Content-Type", strconv.Quote(media)+" is not understood: send "+mediaJSON+" or "+mediaYAML))
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read the job's specification: %w", err)
	}
	name := "job.yaml"
	if media == mediaJSON {
		name = "job.json"
	}
	job, err := specfile.Parse(name, text)
	if err != nil {
		return refusedAs(http.StatusUnprocessableEntity, err)
	}
	who := asker(r.Context())
	if err := runAs(who, &job); err != nil {
		return err
	}
	source := sourceOf(who)
	dry, err := boolean(r, "dryRun", false)
	if err != nil {
		return err
	}
	if dry {
		return g.dryRun(w, r, job)
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > limits.Word.Max {
		return wrong("Idempotency-Key", fmt.Sprintf("has %d bytes (%s)", len(key), limits.Word))
	}
	var found ident.JobID
	again := false
	if key != "" {
		key = "idempotency-" + key
	}
	before := func() bool {
		if key == "" {
			return false
		}
		for _, id := range ident.JobIDs(job.Name, source, key) {
			if v, _, ok := g.feed.Job(id); ok && v.SubmittedBy(source, key) {
				found = v.Job
				return true
			}
		}
		return false
	}
	if again = before(); !again {
		fact, err := g.commands.ask(r.Context(), key, "", events.JobSubmit{Spec: job}, cluster.Is[events.JobSubmitted], before)
		if err != nil {
			return refusedAs(http.StatusUnprocessableEntity, err)
		}
		if s, ok := fact.(events.JobSubmitted); ok {
			found = s.Job
		}
	}
	if v, _, ok := g.feed.Job(found); again && ok && !reflect.DeepEqual(v.Spec.WithDefaults(), job.WithDefaults()) {
		return withStatus(http.StatusUnprocessableEntity, wrong("Idempotency-Key", "was used for another specification, of "+string(found)+": send a new key"))
	}
	w.Header().Set("Location", "/api/v1/jobs/"+string(found))
	status := http.StatusCreated
	if again {
		status = http.StatusOK
	}
	return answer(w, status, Submitted{Job: found, Spec: job.WithDefaults(), Repeat: again})
}

// dryRun answers with what the scheduler would do with a job.
func (g *Gateway) dryRun(w http.ResponseWriter, r *http.Request, job spec.Job) error {
	s := Submitted{Spec: job.WithDefaults(), Free: g.slots().Free}
	if job.SelfRegistered() {
		s.Plan, s.Fits = "its nodes come by themselves: no scheduler places its workers", new(false)
		return answer(w, http.StatusOK, s)
	}
	p, err := cluster.Plan(g.feed.Nodes(), g.feed.Jobs(), g.feed.Pool(), job, g.feed.Silent(r.Context()))
	if err != nil {
		return err
	}
	s.Plan, s.Fits, s.Forecast = p.Text(), &p.Starts, &p
	return answer(w, http.StatusOK, s)
}

func (g *Gateway) listJobs(w http.ResponseWriter, r *http.Request) error {
	all, more, err := g.selected(r)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, JobList{Jobs: view.Jobs(all), More: more})
}

func (g *Gateway) listRows(w http.ResponseWriter, r *http.Request) error {
	all, more, err := g.selected(r)
	if err != nil {
		return err
	}
	rows := JobRows{Jobs: make([]JobRow, len(all)), More: more}
	for i, v := range all {
		rows.Jobs[i] = rowOf(v)
	}
	return answer(w, http.StatusOK, rows)
}

// selected returns the jobs that a request wants, and how many its limit leaves out.
func (g *Gateway) selected(r *http.Request) (all []events.JobView, more int, err error) {
	q := r.URL.Query()
	limit, err := number(r, "limit", 0)
	if err != nil {
		return nil, 0, err
	}
	states := []string{"", "active"}
	for _, s := range jobStates {
		states = append(states, string(s))
	}
	if !slices.Contains(states, q.Get("state")) {
		return nil, 0, wrong("state", strconv.Quote(q.Get("state"))+" is no state: use active, "+strings.Join(states[2:], ", "))
	}
	all = slices.DeleteFunc(g.feed.Jobs(), func(v events.JobView) bool {
		return (q.Get("state") == "active" && v.State.Terminal()) || (q.Get("state") != "" && q.Get("state") != "active" && string(v.State) != q.Get("state")) ||
			!strings.Contains(string(v.Job)+" "+strings.Join(v.Spec.Command, " "), q.Get("q"))
	})
	if limit > 0 && uint64(len(all)) > limit {
		more = len(all) - int(limit)
		all = all[:limit]
	}
	return all, more, nil
}

var jobStates = []events.JobState{
	events.JobStateWaiting, events.JobStateRunning, events.JobStateFinishing, events.JobStateStopping,
	events.JobStateSucceeded, events.JobStateFailed, events.JobStateStopped,
}

// job finds the job of a path.
func (g *Gateway) job(r *http.Request) (events.JobView, uint64, error) {
	id := r.PathValue("job")
	v, revision, ok := g.feed.Job(ident.JobID(id))
	if ok {
		return v, revision, nil
	}
	var known []string
	for _, v := range g.feed.Jobs() {
		known = append(known, string(v.Job))
	}
	hint := cluster.DidYouMean(id, known)
	if hint == "" {
		hint = "see /api/v1/jobs"
	}
	return v, 0, errcode.Errorf(errcode.NotFound, "there is no job %q: %s", limits.Shorten(id, limits.Word.Max), hint)
}

// tag is the ETag of a job: its document's revision, and its newest step.
func tag(v events.JobView, revision uint64) string { return fmt.Sprintf(`"%d-%d"`, revision, v.Step) }

func (g *Gateway) getJob(w http.ResponseWriter, r *http.Request) error {
	v, revision, err := g.job(r)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag(v, revision))
	w.Header().Set("Cache-Control", "private, no-cache")
	if r.Header.Get("If-None-Match") == tag(v, revision) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return answer(w, http.StatusOK, g.detail(v))
}

// checkIfMatch refuses a change of a job that another client has changed meanwhile. Of the tag only
// the revision is compared.
func checkIfMatch(r *http.Request, revision uint64) error {
	want := r.Header.Get("If-Match")
	if want == "" || want == "*" {
		return nil
	}
	if have, _, _ := strings.Cut(strings.Trim(want, `"`), "-"); have != strconv.FormatUint(revision, 10) {
		return withStatus(http.StatusPreconditionFailed, errcode.Errorf(errcode.Conflict, "the job has changed since %s: read it again", want))
	}
	return nil
}

// changeJob changes the job of a path. refused is the HTTP status if the job's state forbids it.
func (g *Gateway) changeJob(r *http.Request, into any, refused int, what func(ident.JobID) cluster.Change[events.JobView]) error {
	v, revision, err := g.job(r)
	if err != nil {
		return err
	}
	if err := owns(asker(r.Context()), v); err != nil {
		return err
	}
	if err := checkIfMatch(r, revision); err != nil {
		return err
	}
	if into != nil {
		if err := body(r, into); err != nil {
			return err
		}
	}
	return refusedAs(refused, change(r.Context(), g.commands, what(v.Job), func() events.JobView {
		now, _, _ := g.feed.Job(v.Job)
		return now
	}))
}

// answerJob answers with the job of a path, unless there is an error.
func (g *Gateway) answerJob(w http.ResponseWriter, r *http.Request, err error) error {
	if err != nil {
		return err
	}
	v, revision, err := g.job(r)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag(v, revision))
	return answer(w, http.StatusOK, g.detail(v))
}

func (g *Gateway) patchJob(w http.ResponseWriter, r *http.Request) error {
	var p Patch
	return g.answerJob(w, r, g.changeJob(r, &p, http.StatusUnprocessableEntity, func(id ident.JobID) cluster.Change[events.JobView] { return cluster.Scale(id, p.Workers) }))
}

func (g *Gateway) stopJob(w http.ResponseWriter, r *http.Request) error {
	var s Stop
	return g.answerJob(w, r, g.changeJob(r, &s, http.StatusUnprocessableEntity, func(id ident.JobID) cluster.Change[events.JobView] { return cluster.Stop(id, s.Reason, s.Now) }))
}

func (g *Gateway) removeJob(w http.ResponseWriter, r *http.Request) error {
	if err := g.changeJob(r, nil, http.StatusConflict, cluster.Remove); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// body decodes a JSON body strictly; an empty one is the zero value.
func body(r *http.Request, into any) error {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if len(text) == 0 {
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != mediaJSON {
		return withStatus(http.StatusUnsupportedMediaType, wrong("Content-Type", "send "+mediaJSON))
	}
	if len(text) > limits.Command.Max {
		return errcode.Errorf(errcode.TooLarge, "the request has %d bytes (%s)", len(text), limits.Command)
	}
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) { // it would be as if nothing was asked for
		return wrong("", "is null: send a JSON object, or no body")
	}
	if f := spec.CheckLimit("", limits.Nesting(text), limits.Depth); f != nil {
		return errcode.Refuse([]spec.FieldError{*f})
	}
	if bad := unknown(text, reflect.TypeOf(into).Elem()); len(bad) > 0 {
		return errcode.Refuse(bad)
	}
	if bad := spec.CheckShape(text, reflect.TypeOf(into).Elem(), ""); len(bad) > 0 {
		return errcode.Refuse(bad)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return wrong("", "is not the JSON that is expected: "+err.Error())
	}
	return nil
}

// unknown reports members that would be ignored.
func unknown(text []byte, t reflect.Type) (bad []spec.FieldError) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return nil // CheckShape says why
	}
	var known []string
	for i := range t.NumField() {
		known = append(known, spec.JSONName(t.Field(i)))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(known, name) {
			bad = append(bad, spec.FieldError{Path: limits.Shorten(name, limits.Word.Max), Message: "unknown field", Hint: spec.DidYouMean(name, known)})
		}
	}
	return bad
}

// boolean reads a query parameter that is 0 or 1, false or true.
func boolean(r *http.Request, name string, otherwise bool) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, wrong(name, strconv.Quote(limits.Shorten(text, limits.Word.Max))+" is neither 0 nor 1")
	}
	return v, nil
}

// number reads a query parameter.
func number(r *http.Request, name string, otherwise uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, wrong(name, strconv.Quote(limits.Shorten(text, limits.Word.Max))+" is not a whole number")
	}
	return v, nil
}
