package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway/webhooks"
)

// description is a client that knows what openapi.json says, and nothing else.
type description struct {
	*world
	document any
	Paths    map[string]map[string]struct {
		ID         string `json:"operationId"`
		Summary    string `json:"summary"`
		Parameters []struct {
			Name, In string
			Required bool
		} `json:"parameters"`
		Body *struct {
			Content map[string]any `json:"content"`
		} `json:"requestBody"`
		Responses map[string]struct {
			Content map[string]any `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
}

func describe(w *world) *description {
	w.Helper()
	d := &description{world: w}
	a := w.get("/openapi.json")
	a.into(w, d)
	var err error
	if d.document, err = jsonschema.UnmarshalJSON(bytes.NewReader(a.body)); err != nil {
		w.Fatal(err)
	}
	return d
}

// pointer escapes a word of a JSON pointer in a URL.
var pointer = strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")

// check validates an answer against its schema in the document.
func (d *description) check(path, method, status, media string, body []byte) {
	d.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("http://gateway/openapi.json", d.document); err != nil {
		d.Fatal(err)
	}
	s, err := c.Compile("http://gateway/openapi.json#/paths/" + pointer.Replace(path) + "/" + method + "/responses/" + status + "/content/" + pointer.Replace(media) + "/schema")
	if err != nil {
		d.Fatalf("%s %s: %v", method, path, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		d.Fatalf("%s %s: %v: %s", method, path, err, body)
	}
	if err := s.Validate(v); err != nil {
		d.Errorf("%s %s: %v\n%s", method, path, err, body)
	}
}

// TestEveryOperationIsAsDescribed calls each operation of the document, in an order in which they
// have something to do, and checks what comes back.
func TestEveryOperationIsAsDescribed(t *testing.T) {
	w := start(t)
	d := describe(w)
	controlled := w.submit(job)
	w.eventually("the job is there", func() bool { return w.get("/api/v1/jobs/"+string(controlled.Job)).status == http.StatusOK })
	w.node("node-a")
	takes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer takes.Close()
	var hook webhooks.Created
	w.do("POST", "/api/v1/webhooks", `{"url": "`+takes.URL+`"}`).into(t, &hook)
	bodies := map[string]string{
		"publishEvents": submitEvent, "submitJob": job, "scaleJob": `{"workers": {"min": 1, "max": 3}}`, "stopJob": `{"reason": "test"}`,
		"drainNode": `{"undo": true}`, "quarantineNode": `{"for": "10m", "reason": "test"}`, "releaseNode": `{}`, "exportSpans": `{"resourceSpans": []}`, "addWebhook": `{"url": "` + takes.URL + `", "types": ["job.*"]}`, "login": `{"token": "` + token + `"}`,
	}
	medias := map[string]string{"publishEvents": "application/cloudevents+json"}
	order := map[string]int{"scaleJob": 1, "stopJob": 2, "removeJob": 3, "drainNode": 1, "quarantineNode": 2, "releaseNode": 3, "testWebhook": 1, "replayWebhook": 2, "removeWebhook": 3, "logout": 4}
	type call struct{ path, method, id string }
	var all []call
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			if op.Summary == "" || ids[op.ID] {
				t.Errorf("%s %s: the operation has no summary, or the name %q of another one", method, path, op.ID)
			}
			ids[op.ID] = true
			all = append(all, call{path, method, op.ID})
		}
	}
	for id := range maps.Keys(bodies) {
		if !ids[id] {
			t.Errorf("there is no operation %s", id)
		}
	}
	slices.SortFunc(all, func(a, b call) int {
		if order[a.id] != order[b.id] {
			return order[a.id] - order[b.id]
		}
		return strings.Compare(a.id, b.id)
	})
	for _, c := range all {
		op := d.Paths[c.path][c.method]
		headers := []string{}
		if op.Body != nil {
			media := medias[c.id]
			if media == "" {
				media = "application/json"
			}
			if op.Body.Content[media] == nil || bodies[c.id] == "" {
				t.Errorf("%s: no body is known for %v", c.id, op.Body.Content)
			}
			headers = append(headers, "Content-Type: "+media)
		}
		path := c.path
		for _, p := range op.Parameters {
			if p.In == "path" && !p.Required {
				t.Errorf("%s: %s is not required", c.id, p.Name)
			}
			path = strings.ReplaceAll(path, "{"+p.Name+"}", map[string]string{"job": string(controlled.Job), "node": "node-a", "webhook": hook.ID}[p.Name])
		}
		if c.id == "removeJob" {
			w.eventually("the job has ended", func() bool {
				return strings.Contains(string(w.get(path).body), `"state":"stopped"`)
			})
		}
		if strings.HasPrefix(c.id, "read") {
			headers = append(headers, "Accept: application/x-ndjson")
		}
		a := w.do(strings.ToUpper(c.method), path, bodies[c.id], headers...)
		status := fmt.Sprint(a.status)
		answer, known := op.Responses[status]
		if !known {
			t.Errorf("%s: %s %s is not described: %s", c.id, path, status, a.body)
			continue
		}
		media, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
		switch {
		case len(answer.Content) == 0 && len(a.body) == 0:
		case err != nil || answer.Content[media] == nil:
			t.Errorf("%s: it is %q, which is not described", c.id, a.header.Get("Content-Type"))
		case media == "application/json":
			d.check(c.path, c.method, status, media, a.body)
		}
		wrong := w.do(strings.ToUpper(c.method), strings.NewReplacer("{job}", "A..B", "{node}", "A..B", "{webhook}", "A..B").Replace(c.path), "\x00", "Content-Type: application/json", "Authorization: Bearer wrong")
		if wrong.status >= http.StatusBadRequest {
			d.check(c.path, c.method, "default", "application/problem+json", wrong.body)
		}
	}
}

// TestAFullJobIsAsDescribed: every field that a job can have fits the schema.
func TestAFullJobIsAsDescribed(t *testing.T) {
	w := bare(t, nil)
	d := describe(w)
	w.Helper()
	v := fullJob(t)
	w.put(events.BucketJobs, string(v.Job), v)
	path := "/api/v1/jobs/" + string(v.Job)
	w.eventually("the job is there", func() bool { return w.get(path).status == http.StatusOK })
	a := w.get(path)
	d.check("/api/v1/jobs/{job}", "get", "200", "application/json", a.body)
	var members struct {
		Workers     []map[string]any `json:"workers"`
		Generations []struct {
			Members []map[string]any `json:"members"`
		} `json:"generations"`
	}
	if err := json.Unmarshal(a.body, &members); err != nil || len(members.Workers) != 2 || members.Workers[1]["rank"] != nil || len(members.Generations[0].Members) != 1 {
		t.Errorf("%v %s", err, a.body)
	}
	for _, path := range []string{"/api/v1/jobs", "/api/v1/overview"} {
		d.check(path, "get", "200", "application/json", w.get(path).body)
	}
}
