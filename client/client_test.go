package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/gateway"
	"github.com/regroup-io/regroup/services/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef-test"

// start runs a registry and a gateway until the test ends, and returns a client of it. through may
// change what comes between them; nil = nothing.
func start(t *testing.T, through func(http.Handler) http.Handler) *client.Client {
	t.Helper()
	ports := memory.New().Ports()
	g, err := gateway.New(gateway.Options{Ports: ports, Token: token, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.New(ports, func(controller.Observation) {})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return g.Serve(ctx, l) })
	running.Go(func() error { return r.Run(ctx) })
	address := "http://" + l.Addr().String()
	transport := &http.Transport{}
	var front *httptest.Server
	if through != nil {
		at, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(at)
		proxy.FlushInterval = -1
		proxy.Transport = transport
		proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		front = httptest.NewServer(through(proxy))
		address = front.URL
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if front != nil {
			front.Close()
		}
		if err := running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("a service ended: %v", err)
		}
	})
	c, err := client.New(client.Options{URL: address + "/", Token: token, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	within, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	err = wait.Until(within, 10*time.Millisecond, func() (bool, error) { return c.Get(within, "/api/v1/overview", &struct{}{}) == nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var job = spec.Job{Name: "mnist", Command: []string{"train"}, Workers: spec.Workers{Min: 2, Max: 4}}

// kinds reads the kinds of the facts about a job until one of this kind.
func kinds(t *testing.T, c *client.Client, id ident.JobID, until string) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range c.Events(ctx, client.EventsOptions{Job: id}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Body.Type().Kind())
		if all[len(all)-1] == until {
			return all
		}
	}
	t.Fatalf("there was no %s: %v", until, all)
	return nil
}

// TestTheLifeOfAJob by each method that changes it.
func TestTheLifeOfAJob(t *testing.T) {
	c := start(t, nil)
	ctx := t.Context()
	id, err := c.Submit(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	if kinds(t, c, id, "submitted"); t.Failed() {
		return
	}
	v, err := c.Scale(ctx, id, spec.Workers{Min: 1, Max: 3})
	if err != nil || v.Spec.Workers != (spec.Workers{Min: 1, Max: 3}) || v.Job != id {
		t.Errorf("%v: %+v", err, v)
	}
	another, err := c.SubmitFile(ctx, []byte(`{"name": "second", "command": ["true"], "workers": {"min": 1, "max": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Jobs(ctx, client.Selection{Text: "second", State: events.JobStateWaiting, Limit: 5})
	if err != nil || len(list) != 1 || list[0].Job != another {
		t.Errorf("%v: %v", err, list)
	}
	if err := c.Remove(ctx, id); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("a job that runs was removed: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		v, err := c.Wait(ctx, id)
		if err == nil && v.State != events.JobStateStopped {
			err = errors.New("it is " + string(v.State))
		}
		ended <- err
	}()
	if v, err = c.Stop(ctx, id, "enough", false); err != nil || v.Reason == "" && !v.State.Terminal() && v.State != events.JobStateStopping {
		t.Errorf("%v: %+v", err, v)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, id); err != nil {
		t.Error(err)
	}
	if _, err := c.Job(ctx, id); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v", err)
	}
}

// TestPlan: nothing is submitted, and a job that is wrong is refused.
func TestPlan(t *testing.T) {
	c := start(t, nil)
	p, err := c.Plan(t.Context(), job)
	if err != nil || p.Fits || p.Free != 0 || !strings.Contains(p.Text, "would wait") || p.Spec.Stop.Grace == 0 || !strings.Contains(string(p.Forecast), `"starts":false`) {
		t.Errorf("%v: %+v", err, p)
	}
	if all, err := c.Jobs(t.Context(), client.Selection{}); err != nil || len(all) != 0 {
		t.Errorf("%v: jobs %v", err, all)
	}
	if _, err := c.Plan(t.Context(), spec.Job{Name: "No Name"}); errcode.Of(err) != errcode.Invalid || len(errcode.FieldErrorsOf(err)) < 2 {
		t.Errorf("a wrong job: %v", err)
	}
}

// TestRefusals have the gateway's code and findings.
func TestRefusals(t *testing.T) {
	c := start(t, nil)
	_, err := c.Submit(t.Context(), spec.Job{Name: "No Name", Workers: spec.Workers{Min: 3, Max: 2}})
	var paths []string
	for _, f := range errcode.FieldErrorsOf(err) {
		paths = append(paths, f.Path)
	}
	if errcode.Of(err) != errcode.Invalid || !slices.Contains(paths, "name") || !slices.Contains(paths, "command") {
		t.Errorf("%v: %v", err, paths)
	}
	for name, err := range map[string]error{
		"a path in an id":       second(c.Job(t.Context(), "../nodes")),
		"a command without job": c.Publish(t.Context(), events.Event{ID: "1", Source: "/me", Time: time.Now(), Body: events.JobStop{}}),
		"a path in a node":      second(c.Drain(t.Context(), "a/b", "")),
	} {
		if errcode.Of(err) != errcode.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes) != 0 {
		t.Errorf("%v: %v", err, nodes)
	}
	for _, err := range c.Events(t.Context(), client.EventsOptions{Type: "[", Now: true}) {
		if errcode.Of(err) != errcode.Invalid {
			t.Errorf("%v", err)
		}
	}
	for _, o := range []client.Options{{URL: "127.0.0.1:80", Token: "x"}, {URL: "http://127.0.0.1:80"}, {StateDir: t.TempDir()}} {
		if _, err := client.New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestAPublishedCommandIsAnswered by a fact that names it.
func TestAPublishedCommandIsAnswered(t *testing.T) {
	c := start(t, nil)
	e := events.Event{ID: "01", Source: "/client/test", Time: time.Now(), Body: events.JobSubmit{Spec: job}}
	for range 2 { // the second is a repeat
		if err := c.Publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	id := ident.JobIDFrom(job.Name, e.Source, e.ID)
	for e, err := range c.Events(t.Context(), client.EventsOptions{Job: id}) {
		if err != nil || e.Cause != "01" || e.Position == 0 {
			t.Errorf("%v: %+v", err, e)
		}
		break
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := wait.Until(within, 10*time.Millisecond, func() (bool, error) { // its document may be seen after the fact
		list, err := c.Jobs(within, client.Selection{})
		if len(list) > 1 {
			err = fmt.Errorf("%d jobs", len(list))
		}
		return len(list) == 1, err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestALostAnswerSubmitsOneJob: the gateway has carried the request out, and the connection breaks.
func TestALostAnswerSubmitsOneJob(t *testing.T) {
	var lost atomic.Bool
	c := start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && !lost.Swap(true) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	if _, err := c.Submit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	list, err := c.Jobs(t.Context(), client.Selection{})
	if err != nil || len(list) != 1 || !lost.Load() {
		t.Errorf("%v: %d jobs, an answer was lost: %v", err, len(list), lost.Load())
	}
}

// cutting ends each connection of a stream after some bytes.
type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left]) // the client may have gone
		c.Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

func (c *cutting) Flush() { c.ResponseWriter.(http.Flusher).Flush() } //nolint:forcetypeassert // the server's has it

// TestStreamsGoOn where they were when their connections break in the middle: nothing is missed,
// and nothing is read twice.
func TestStreamsGoOn(t *testing.T) {
	var connections atomic.Int32
	c := start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v1/events" {
				connections.Add(1)
				w = &cutting{w, 1500}
			}
			next.ServeHTTP(w, r)
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const jobs = 20
	for range jobs {
		if _, err := c.Submit(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[ident.JobID]int{}
	last := uint64(0)
	for e, err := range c.Events(ctx, client.EventsOptions{After: 1, Type: "job.submitted"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position <= last {
			t.Errorf("position %d after %d", e.Position, last)
		}
		last = e.Position
		if seen[ident.JobID(e.Entity)]++; len(seen) == jobs-1 {
			break
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times", id, n)
		}
	}
	if n := connections.Load(); n < 3 || len(seen) != jobs-1 {
		t.Errorf("%d events over %d connections", len(seen), n)
	}
}

// TestFromNowOn nothing is missed either: a connection that breaks before its first event goes on
// where it began.
func TestFromNowOn(t *testing.T) {
	var broken atomic.Bool
	opened := make(chan struct{})
	again := make(chan struct{})
	c := start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/events" {
				next.ServeHTTP(w, r)
				return
			}
			if broken.Load() {
				<-again
				next.ServeHTTP(w, r)
				return
			}
			ctx, cancel := context.WithCancel(r.Context())
			first := &firstBytes{ResponseWriter: w, then: func() { broken.Store(true); cancel() }}
			defer close(opened)
			next.ServeHTTP(first, r.WithContext(ctx))
			panic(http.ErrAbortHandler)
		})
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := make(chan ident.JobID, 1)
	go func() {
		for e, err := range c.Events(ctx, client.EventsOptions{}) {
			if err == nil {
				read <- ident.JobID(e.Entity)
			}
			return
		}
	}()
	<-opened
	id, err := c.Submit(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	close(again)
	select {
	case got := <-read:
		if got != id {
			t.Errorf("%s was read, want %s", got, id)
		}
	case <-ctx.Done():
		t.Error("the event was missed")
	}
}

// firstBytes calls then after the first write.
type firstBytes struct {
	http.ResponseWriter
	then func()
}

func (f *firstBytes) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	f.Flush()
	f.then()
	return n, err
}

func (f *firstBytes) Flush() { f.ResponseWriter.(http.Flusher).Flush() } //nolint:forcetypeassert // the server's has it

// TestWithoutAGateway errors come after the patience, and the end of ctx is none of a stream.
func TestWithoutAGateway(t *testing.T) {
	c, err := client.New(client.Options{URL: "http://127.0.0.1:1", Token: token, Patience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Submit(t.Context(), job); errcode.Of(err) != errcode.Unavailable {
		t.Errorf("%v", err)
	}
	n := 0
	for _, err := range c.Events(t.Context(), client.EventsOptions{}) {
		if n++; errcode.Of(err) != errcode.Unavailable {
			t.Errorf("%v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Events(ctx, client.EventsOptions{}) {
		n++
		t.Errorf("%v", err)
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
	if _, err := c.Job(ctx, "mnist-1"); errcode.Of(err) != errcode.Cancelled {
		t.Errorf("%v", err)
	}
}

// TestAnotherServer is not taken for a gateway.
func TestAnotherServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, "<html>")
	}))
	defer s.Close()
	c, err := client.New(client.Options{URL: s.URL, Token: token, HTTP: s.Client(), Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes(t.Context()); errcode.Of(err) != errcode.Internal || !strings.Contains(err.Error(), "teapot") {
		t.Errorf("%v", err)
	}
	var v json.RawMessage
	if err := c.Get(t.Context(), "/", &v); errcode.Of(err) != errcode.Internal {
		t.Errorf("%v", err)
	}
	if _, err := c.Link(t.Context()); errcode.Of(err) != errcode.Internal {
		t.Errorf("%v", err)
	}
}
