package gateway_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/services/gateway"
	"github.com/regroup-io/regroup/services/gateway/tokens"
)

// guarded is a world with a token of each role.
type guarded struct {
	*world
	file   *tokens.File
	tokens map[tokens.Role]string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{file: tokens.Open(filepath.Join(t.TempDir(), "tokens.json")), tokens: map[tokens.Role]string{}}
	for _, r := range tokens.Roles() {
		user := ""
		if r == tokens.Submitter {
			user = "nobody"
		}
		token, err := g.file.Issue(tokens.Principal{Name: "a-" + string(r), Role: r, User: user}, time.Now(), 0)
		if err != nil {
			t.Fatal(err)
		}
		g.tokens[r] = token
	}
	g.world = bare(t, func(o *gateway.Options) { o.Tokens = g.file.Path() })
	g.services()
	return g
}

func (g *guarded) as(r tokens.Role) string { return "Authorization: Bearer " + g.tokens[r] }

// needs is the weakest role for each operation that not every token may use.
var needs = map[string]tokens.Role{
	"publishEvents": tokens.Submitter, "exportSpans": tokens.Submitter, "submitJob": tokens.Submitter, "scaleJob": tokens.Submitter, "removeJob": tokens.Submitter, "stopJob": tokens.Submitter,
	"listWebhooks": tokens.Operator, "addWebhook": tokens.Operator, "removeWebhook": tokens.Operator, "testWebhook": tokens.Operator, "replayWebhook": tokens.Operator,
	"drainNode": tokens.Operator, "quarantineNode": tokens.Operator, "releaseNode": tokens.Operator,
}

// TestEveryRoleAtEveryOperation: an operation that changes something and is in no list needs a
// decision.
func TestEveryRoleAtEveryOperation(t *testing.T) {
	g := newGuarded(t)
	d := describe(g.world)
	for path, methods := range d.Paths {
		for method, op := range methods {
			need, listed := needs[op.ID]
			session := strings.HasPrefix(path, "/api/v1/session") || path == "/api/v1/links"
			if method != "get" && !session && !listed {
				t.Errorf("%s changes something, and has no role", op.ID)
			}
			for _, r := range tokens.Roles() {
				a := g.do(strings.ToUpper(method), strings.NewReplacer("{job}", "x-1", "{node}", "x", "{webhook}", "x").Replace(path)+"?follow=0", "", g.as(r), "Accept: application/x-ndjson, */*")
				refused := a.status == http.StatusForbidden
				if want := listed && !r.Includes(need); refused != want {
					t.Errorf("%s as %s: %d %s", op.ID, r, a.status, a.body)
				} else if refused && !strings.Contains(a.problem(t).Detail, string(need)) {
					t.Errorf("%s as %s: %s", op.ID, r, a.body)
				}
			}
		}
	}
}

// TestASubmitterChangesItsOwnJobs, by each way to do so, and they run as its user.
func TestASubmitterChangesItsOwnJobs(t *testing.T) {
	g := newGuarded(t)
	submit := func(auth string) events.JobView {
		t.Helper()
		var s gateway.Submitted
		a := g.do("POST", "/api/v1/jobs", job, auth, "Content-Type: application/json")
		if a.status != http.StatusCreated {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a.into(t, &s)
		var v events.JobView
		g.get("/api/v1/jobs/"+string(s.Job)).into(t, &v)
		return v
	}
	mine, other := submit(g.as(tokens.Submitter)), submit(g.as(tokens.Operator))
	if mine.Spec.Processes.User != "nobody" || other.Spec.Processes.User != "" || mine.By == other.By {
		t.Errorf("%q by %s, %q by %s", mine.Spec.Processes.User, mine.By, other.Spec.Processes.User, other.By)
	}
	event := func(source, kind, data string) answer {
		return g.do("POST", "/api/v1/events", data, g.as(tokens.Submitter), "Content-Type: application/json", "ce-specversion: 1.0", "ce-id: "+kind+source,
			"ce-source: "+source, "ce-type: dev.regroup."+kind+".v1")
	}
	const own = "/client/gateway/a-submitter"
	stop := func(v events.JobView) string { return `{"job": "` + string(v.Job) + `"}` }
	asRoot := strings.Replace(job, "{", `{"processes": {"user": "root"}, `, 1)
	for name, c := range map[string]struct {
		answer answer
		want   int
	}{
		"stop another's":                {g.do("POST", "/api/v1/jobs/"+string(other.Job)+"/stop", "{}", g.as(tokens.Submitter), "Content-Type: application/json"), http.StatusForbidden},
		"scale another's":               {g.do("PATCH", "/api/v1/jobs/"+string(other.Job), `{"workers": {"min": 1, "max": 1}}`, g.as(tokens.Submitter), "Content-Type: application/json"), http.StatusForbidden},
		"remove another's":              {g.do("DELETE", "/api/v1/jobs/"+string(other.Job), "", g.as(tokens.Submitter)), http.StatusForbidden},
		"stop another's by an event":    {event(own, "job.stop", stop(other)), http.StatusForbidden},
		"stop in another's name":        {event("/client/gateway", "job.stop", stop(mine)), http.StatusForbidden},
		"submit in another's name":      {event("/client/ada", "job.submit", `{"spec": `+job+`}`), http.StatusForbidden},
		"submit as another user":        {g.do("POST", "/api/v1/jobs", asRoot, g.as(tokens.Submitter), "Content-Type: application/json"), http.StatusForbidden},
		"the same by an event":          {event(own, "job.submit", `{"spec": `+asRoot+`}`), http.StatusForbidden},
		"drain a node by an event":      {event(own, "node.drain", `{"node": "node-a"}`), http.StatusForbidden},
		"an unknown job by an event":    {event(own, "job.stop", `{"job": "nobody-1"}`), http.StatusNotFound},
		"a batch with another's":        {g.do("POST", "/api/v1/events", `[{"specversion": "1.0", "id": "7", "source": "`+own+`", "type": "dev.regroup.job.submit.v1", "data": {"spec": `+job+`}}, {"specversion": "1.0", "id": "8", "source": "`+own+`", "type": "dev.regroup.job.stop.v1", "data": `+stop(other)+`}]`, g.as(tokens.Submitter), "Content-Type: application/cloudevents-batch+json"), http.StatusForbidden},
		"as a service":                  {g.do("POST", "/api/v1/events", stop(other), g.as(tokens.Operator), "Content-Type: application/json", "ce-specversion: 1.0", "ce-id: 10", "ce-source: /regroup/registry", "ce-type: dev.regroup.job.stop.v1"), http.StatusForbidden},
		"as the owner of another token": {g.do("POST", "/api/v1/events", stop(other), g.as(tokens.Operator), "Content-Type: application/json", "ce-specversion: 1.0", "ce-id: 11", "ce-source: /client/gateway/somebody", "ce-type: dev.regroup.job.stop.v1"), http.StatusForbidden},
		"as a submitter of the broker":  {g.do("POST", "/api/v1/events", stop(other), g.as(tokens.Operator), "Content-Type: application/json", "ce-specversion: 1.0", "ce-id: 9", "ce-source: /submitter/ada", "ce-type: dev.regroup.job.stop.v1"), http.StatusForbidden},
		"stop its own by an event":      {event(own, "job.stop", stop(mine)), http.StatusAccepted},
		"an operator stops another's":   {g.do("POST", "/api/v1/jobs/"+string(mine.Job)+"/stop", "{}", g.as(tokens.Operator), "Content-Type: application/json"), http.StatusOK},
	} {
		if c.answer.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, c.answer.status, c.answer.body, c.want)
		}
	}
	var list gateway.JobList
	g.get("/api/v1/jobs").into(t, &list)
	if len(list.Jobs) != 2 {
		t.Errorf("%d jobs: a refused submit, or a part of a refused batch, was carried out", len(list.Jobs))
	}
}

// TestARevokedTokenEndsItsSessions, and a link gives no more than the token that it was made with.
func TestARevokedTokenEndsItsSessions(t *testing.T) {
	g := newGuarded(t)
	var link gateway.Link
	g.do("POST", "/api/v1/links", "", g.as(tokens.Viewer)).into(t, &link)
	cookie, _, _ := strings.Cut(g.get(link.Path, "Authorization: ").header.Get("Set-Cookie"), ";")
	session := []string{"Authorization: ", "Cookie: " + cookie}
	if a := g.get("/api/v1/jobs", session...); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.do("POST", "/api/v1/jobs", job, append(session, "Content-Type: application/json")...); a.status != http.StatusForbidden {
		t.Errorf("the session of a viewer submits: %d %s", a.status, a.body)
	}
	if err := g.file.Revoke("a-viewer"); err != nil {
		t.Fatal(err)
	}
	for _, headers := range [][]string{session, {g.as(tokens.Viewer)}} {
		if a := g.get("/api/v1/jobs", headers...); a.status != http.StatusUnauthorized {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := g.get("/api/v1/jobs"); a.status != http.StatusOK {
		t.Errorf("the gateway's own token: %d", a.status)
	}
}
