package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/services/cluster/timeline"
	"github.com/regroup-io/regroup/services/cluster/view"
	"github.com/regroup-io/regroup/services/cluster/waterfall"
	"github.com/regroup-io/regroup/services/gateway/endpoint"
	"github.com/regroup-io/regroup/services/gateway/feed"
	"github.com/regroup-io/regroup/services/gateway/openapi"
	"github.com/regroup-io/regroup/services/gateway/otlp"
	"github.com/regroup-io/regroup/services/gateway/tokens"
	"github.com/regroup-io/regroup/services/gateway/webhooks"
)

// route is one operation. The server's paths and openapi.json are made of the same list.
type route struct {
	method, path string
	name         string // operationId
	what         string // one line
	query        []parameter
	headers      []parameter
	takes        []content   // forms of the body; empty = none
	status       int         // of success
	gives        []content   // forms of the answer; empty = none
	open         bool        // needs no token
	needs        tokens.Role // the weakest one that may; of those that need a token
	handle       func(w http.ResponseWriter, r *http.Request) error
}

// parameter is a query parameter or a header.
type parameter struct {
	name, what string
	kind       string // string, integer or boolean; of OpenAPI
}

// content is a body with its media type; typ nil = text.
type content struct {
	media string
	typ   reflect.Type
}

const (
	mediaJSON    = "application/json"
	mediaYAML    = "application/yaml"
	mediaText    = "text/plain"
	mediaSSE     = "text/event-stream"
	mediaNDJSON  = "application/x-ndjson"
	mediaSVG     = "image/svg+xml"
	mediaProblem = "application/problem+json"
	mediaEvent   = "application/cloudevents+json"
	mediaBatch   = "application/cloudevents-batch+json"
)

func asJSON[T any]() []content { return []content{{mediaJSON, reflect.TypeFor[T]()}} }

// table lists the operations.
func (g *Gateway) table() []route {
	jobPath := "/api/v1/jobs/{job}"
	nodePath := "/api/v1/nodes/{node}"
	hookPath := "/api/v1/webhooks/{webhook}"
	key := parameter{"Idempotency-Key", "repeats of a request with the same key submit one job", "string"}
	match := parameter{"If-Match", "ETag of the job that is to be changed; another one is refused with 412", "string"}
	resume := parameter{"Last-Event-ID", "continue after the event with this id", "string"}
	format := []content{{mediaSSE, nil}, {mediaNDJSON, nil}}
	eventsQuery := []parameter{
		{"type", "only types of this pattern: worker.exited, incident.*", "string"},
		{"after", "as Last-Event-ID; 0 = from the oldest", "integer"},
		{"follow", "0 = end after those that are stored now; of server-sent events 1 is the default, else 0", "boolean"},
		{"text", "1 = each fact as an object: what it says in one sentence, its family, and the event", "boolean"},
	}
	jobsQuery := []parameter{
		{"state", "only jobs in this state; active = those that have not ended", "string"},
		{"q", "only jobs whose id or command contains this text", "string"},
		{"limit", "at most so many", "integer"},
	}
	return []route{
		{
			method: "POST", path: "/api/v1/events", needs: tokens.Submitter, name: "publishEvents", what: "Publish commands as CloudEvents, in binary, structured or batch mode",
			takes:  []content{{mediaEvent, reflect.TypeFor[map[string]any]()}, {mediaBatch, reflect.TypeFor[[]map[string]any]()}, {mediaJSON, reflect.TypeFor[map[string]any]()}},
			status: http.StatusAccepted, gives: asJSON[Published](), handle: g.publish,
		},
		{
			method: "GET", path: "/api/v1/events", needs: tokens.Viewer, name: "readEvents", what: "The facts about all jobs and nodes, as a stream",
			query:   append(eventsQuery, parameter{"live", "1 = also changes of views and progress, which have no id", "boolean"}),
			headers: []parameter{resume}, status: http.StatusOK, gives: format, handle: g.allEvents,
		},
		{
			method: "POST", path: "/api/v1/jobs", needs: tokens.Submitter, name: "submitJob", what: "Submit a job",
			query: []parameter{{"dryRun", "1 = only check it, and say whether it would start now, where, or what it would wait for", "boolean"}}, headers: []parameter{key},
			takes:  []content{{mediaJSON, reflect.TypeFor[map[string]any]()}, {mediaYAML, nil}},
			status: http.StatusCreated, gives: asJSON[Submitted](), handle: g.submit,
		},
		{
			method: "GET", path: "/api/v1/jobs", needs: tokens.Viewer, name: "listJobs", what: "Every job, the newest first",
			query: jobsQuery, status: http.StatusOK, gives: asJSON[JobList](), handle: g.listJobs,
		},
		{method: "GET", path: "/api/v1/job-rows", needs: tokens.Viewer, name: "listJobRows", what: "Every job in short: without workers, generations and incidents", query: jobsQuery, status: http.StatusOK, gives: asJSON[JobRows](), handle: g.listRows},
		{method: "GET", path: jobPath, needs: tokens.Viewer, name: "getJob", what: "One job, with an ETag", status: http.StatusOK, gives: asJSON[JobDetail](), handle: g.getJob},
		{
			method: "PATCH", path: jobPath, needs: tokens.Submitter, name: "scaleJob", what: "Change the wanted number of workers", headers: []parameter{match},
			takes: asJSON[Patch](), status: http.StatusOK, gives: asJSON[JobDetail](), handle: g.patchJob,
		},
		{method: "DELETE", path: jobPath, needs: tokens.Submitter, name: "removeJob", what: "Remove the record of an ended job", headers: []parameter{match}, status: http.StatusNoContent, handle: g.removeJob},
		{method: "POST", path: jobPath + "/stop", needs: tokens.Submitter, name: "stopJob", what: "End a job", takes: asJSON[Stop](), status: http.StatusOK, gives: asJSON[JobDetail](), handle: g.stopJob},
		{method: "GET", path: jobPath + "/events", needs: tokens.Viewer, name: "readJobEvents", what: "The facts about a job, from the oldest", query: eventsQuery, headers: []parameter{resume}, status: http.StatusOK, gives: format, handle: g.jobEvents},
		{
			method: "GET", path: jobPath + "/logs", needs: tokens.Viewer, name: "readJobLogs", what: "The output of the workers of a job",
			query: []parameter{
				{"rank", "only of these ranks: 0,3-5", "string"},
				{"node", "only of this node", "string"},
				{"tail", "only the newest so many lines", "integer"},
				{"follow", "1 = go on with what comes; ends with the job, of server-sent events with one of the type end", "boolean"},
				{"after", "as Last-Event-ID", "string"},
			},
			headers: []parameter{resume}, status: http.StatusOK, gives: append([]content{{mediaText, nil}}, format...), handle: g.logs,
		},
		{method: "GET", path: jobPath + "/metrics", needs: tokens.Viewer, name: "getJobMetrics", what: "Points of the metrics that a job has reported", status: http.StatusOK, gives: asJSON[Series](), handle: page(g, g.jobMetrics)},
		{method: "GET", path: jobPath + "/workers", needs: tokens.Viewer, name: "getJobWorkers", what: "What each worker of a job does now: its step, how long one takes it, processors and memory", status: http.StatusOK, gives: asJSON[WorkerList](), handle: page(g, g.workers)},
		{method: "GET", path: "/api/v1/nodes", needs: tokens.Viewer, name: "listNodes", what: "Every node, by name", status: http.StatusOK, gives: asJSON[NodeList](), handle: g.listNodes},
		{method: "POST", path: nodePath + "/drain", needs: tokens.Operator, name: "drainNode", what: "Give a node no more work and move its work away", takes: asJSON[Drain](), status: http.StatusOK, gives: asJSON[events.NodeView](), handle: g.drainNode},
		{method: "POST", path: nodePath + "/quarantine", needs: tokens.Operator, name: "quarantineNode", what: "Quarantine a node or a slot for a time", takes: asJSON[QuarantineRequest](), status: http.StatusOK, gives: asJSON[events.NodeView](), handle: g.quarantineNode},
		{method: "POST", path: nodePath + "/release", needs: tokens.Operator, name: "releaseNode", what: "End the quarantine of a node or a slot", takes: asJSON[ReleaseRequest](), status: http.StatusOK, gives: asJSON[events.NodeView](), handle: g.releaseNode},
		{method: "GET", path: "/api/v1/overview", needs: tokens.Viewer, name: "getOverview", what: "Jobs by state, slots, the newest incidents, and what needs attention", status: http.StatusOK, gives: asJSON[Overview](), handle: g.overview},
		{method: "GET", path: "/api/v1/system", needs: tokens.Viewer, name: "getSystem", what: "Services, brokers and this gateway", status: http.StatusOK, gives: asJSON[System](), handle: g.system},
		{method: "GET", path: "/api/v1/webhooks", needs: tokens.Operator, name: "listWebhooks", what: "Where facts are sent, and how that goes", status: http.StatusOK, gives: asJSON[HookList](), handle: g.listHooks},
		{method: "POST", path: "/api/v1/webhooks", needs: tokens.Operator, name: "addWebhook", what: "Send the facts from now on to an address", takes: asJSON[webhooks.New](), status: http.StatusCreated, gives: asJSON[webhooks.Created](), handle: g.addHook},
		{method: "DELETE", path: hookPath, needs: tokens.Operator, name: "removeWebhook", what: "Send no more there", status: http.StatusNoContent, handle: g.removeHook},
		{method: "POST", path: hookPath + "/test", needs: tokens.Operator, name: "testWebhook", what: "Send an event that is no fact, once", status: http.StatusNoContent, handle: g.testHook},
		{method: "POST", path: hookPath + "/replay", needs: tokens.Operator, name: "replayWebhook", what: "Send the facts that were set aside once more", status: http.StatusOK, gives: asJSON[Replayed](), handle: g.replayHook},
		{method: "GET", path: "/api/v1/session", needs: tokens.Viewer, name: "getAsker", what: "Who asks, and with which role", status: http.StatusOK, gives: asJSON[Asker](), handle: g.whoami},
		{method: "POST", path: "/api/v1/session", name: "login", what: "Exchange the token for a session of a browser", takes: asJSON[Login](), status: http.StatusNoContent, open: true, handle: g.login},
		{method: "DELETE", path: "/api/v1/session", needs: tokens.Viewer, name: "logout", what: "End the session", status: http.StatusNoContent, handle: g.logout},
		{method: "POST", path: "/api/v1/links", needs: tokens.Viewer, name: "makeLink", what: "A link that opens the dashboard once", status: http.StatusCreated, gives: asJSON[Link](), handle: g.makeLink},
		{
			method: "POST", path: "/v1/traces", needs: tokens.Submitter, name: "exportSpans", what: "Store spans, as OTLP exporters send them; packed with gzip or not",
			takes: []content{{otlp.Protobuf, nil}, {otlp.JSON, reflect.TypeFor[map[string]any]()}}, status: http.StatusOK, gives: []content{{otlp.Protobuf, nil}, {otlp.JSON, reflect.TypeFor[map[string]any]()}}, handle: g.takeSpans,
		},
		{method: "GET", path: "/metrics", needs: tokens.Viewer, name: "getMetrics", what: "Metrics for Prometheus", status: http.StatusOK, gives: []content{{mediaText, nil}}, handle: g.metrics.serve},
		{method: "GET", path: "/openapi.json", name: "getDescription", what: "This description", status: http.StatusOK, gives: asJSON[map[string]any](), open: true, handle: g.describe},
		{method: "GET", path: "/healthz", name: "getHealth", what: "Is the process alive?", status: http.StatusOK, gives: []content{{mediaText, nil}}, open: true, handle: g.healthy},
		{method: "GET", path: "/readyz", name: "getReadiness", what: "Is it connected, with every view read?", status: http.StatusOK, gives: []content{{mediaText, nil}}, open: true, handle: g.ready},
		{method: "GET", path: jobPath + "/explain", needs: tokens.Viewer, name: "getJobExplain", what: "What the job does, and what it waits for, in one sentence with numbers", status: http.StatusOK, gives: asJSON[view.Explanation](), handle: page(g, g.explain)},
		{method: "GET", path: jobPath + "/summary", needs: tokens.Viewer, name: "getJobSummary", what: "The result of the job, as regroup run -o json prints it", status: http.StatusOK, gives: asJSON[view.Summary](), handle: page(g, g.summary)},
		{
			method: "GET", path: jobPath + "/timeline", needs: tokens.Viewer, name: "getJobTimeline", what: "What each worker did over time, and the generations",
			query:  []parameter{{"format", "json or svg, a picture; without it as the header Accept says, else json", "string"}},
			status: http.StatusOK, gives: append(asJSON[timeline.Timeline](), content{mediaSVG, nil}), handle: g.timelinePage,
		},
		{method: "GET", path: jobPath + "/traces", needs: tokens.Viewer, name: "getJobTraces", what: "The spans of the start of the job and of its incidents, each in the order of a waterfall", status: http.StatusOK, gives: asJSON[waterfall.Page](), handle: page(g, g.traces)},
	}
}

// encodesItself are the schemas of types whose JSON is not that of their fields.
var encodesItself = map[reflect.Type]openapi.Schema{
	reflect.TypeFor[ident.Places](): {"type": []string{"array", "null"}, "items": openapi.Schema{"type": "string"}},
	reflect.TypeFor[ident.Rank]():   {"type": []string{"integer", "null"}},
	reflect.TypeFor[feed.Point]():   {"type": "array", "items": openapi.Schema{"type": "number"}, "minItems": 3, "maxItems": 3},
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// describe returns the OpenAPI 3.1 document of the routes.
func describe(routes []route, version string) ([]byte, error) {
	s := openapi.New(encodesItself)
	type object = map[string]any
	paths := object{}
	for _, r := range routes {
		op := object{"operationId": r.name, "summary": r.what}
		var parameters []object
		for _, m := range pathParameter.FindAllStringSubmatch(r.path, -1) {
			parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for i, p := range slices.Concat(r.query, r.headers) {
			in := "query"
			if i >= len(r.query) {
				in = "header"
			}
			parameters = append(parameters, object{"name": p.name, "in": in, "description": p.what, "schema": object{"type": p.kind}})
		}
		if len(parameters) > 0 {
			op["parameters"] = parameters
		}
		forms := func(all []content) object {
			out := object{}
			for _, c := range all {
				form := object{"schema": object{"type": "string"}}
				if c.typ != nil {
					form["schema"] = s.Of(c.typ)
				}
				out[c.media] = form
			}
			return out
		}
		if len(r.takes) > 0 {
			op["requestBody"] = object{"content": forms(r.takes)}
		}
		success := object{"description": http.StatusText(r.status)}
		if len(r.gives) > 0 {
			success["content"] = forms(r.gives)
		}
		op["responses"] = object{
			strconv.Itoa(r.status): success,
			"default":              object{"description": "what is wrong, and with which field", "content": object{mediaProblem: object{"schema": s.Of(reflect.TypeFor[Problem]())}}},
		}
		if r.open {
			op["security"] = []object{}
		}
		at, _ := paths[r.path].(object)
		if at == nil {
			at = object{}
			paths[r.path] = at
		}
		at[strings.ToLower(r.method)] = op
	}
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info":    object{"title": "Regroup", "version": cmp.Or(version, "dev"), "description": "Jobs, nodes, events and output. Errors are problems (RFC 9457) whose code is that of the command line."},
		"paths":   paths,
		"components": object{
			"schemas":         s.Named,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"token": []string{}}},
	}, "", "  ")
}

func (g *Gateway) describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", mediaJSON)
	_, _ = w.Write(g.document) // the client has gone
	return nil
}

// handler is the server's: paths, then what holds for every request.
func (g *Gateway) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range g.routes {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
			if !r.open {
				who, ok := g.asks(req)
				if !ok {
					w.Header().Set("WWW-Authenticate", `Bearer realm="regroup"`)
					refuse(w, withStatus(http.StatusUnauthorized, errcode.Errorf(errcode.Invalid, "no valid token: send Authorization: Bearer TOKEN, or open a link of regroup dashboard")))
					return
				}
				if !who.Role.Includes(r.needs) {
					refuse(w, forbidden("%s is a %s: it needs a token of the role %s", who.Name, who.Role, r.needs))
					return
				}
				req = req.WithContext(context.WithValue(req.Context(), askerKey{}, who))
			}
			if t := req.Header.Get(events.HeaderTrace); tracing.Valid(t) {
				req = req.WithContext(tracing.NewContext(req.Context(), t))
			}
			if err := r.handle(w, req); err != nil {
				refuse(w, err)
			}
		})
	}
	mux.HandleFunc("GET /login/{code}", g.openLink)
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) { refuse(w, unknownPath(mux, w, r)) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuse(w, unknownPath(mux, w, r))
			return
		}
		g.assets.ServeHTTP(w, r)
	})
	return g.guard(mux)
}

// unknownPath is the error for a path without a route, or whose routes have other methods.
func unknownPath(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) error {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = m
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, m+" ") {
			methods = append(methods, m)
		}
	}
	if len(methods) == 0 {
		return errcode.Errorf(errcode.NotFound, "there is no %s: see /openapi.json", r.URL.Path)
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return withStatus(http.StatusMethodNotAllowed, errcode.Errorf(errcode.Invalid, "%s has no %s: use %s", r.URL.Path, r.Method, strings.Join(methods, " or ")))
}

// guard refuses requests that a foreign page can make a browser send, and limits bodies.
func (g *Gateway) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, withStatus(http.StatusForbidden, errcode.Errorf(errcode.Invalid, "a page of another site has made this request: it is refused")))
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		if g.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if !g.Secure && !loopbackHost(r.Host) {
			refuse(w, withStatus(http.StatusMisdirectedRequest, errcode.Errorf(errcode.Invalid, "Host %q is not this machine: use the address that the gateway has printed", r.Host)))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		g.metrics.count(inner, w, r)
	})
}

// loopbackHost reports whether a Host header names this machine: another name may be one that an
// attacker has pointed here.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return endpoint.Loopback(host)
}
