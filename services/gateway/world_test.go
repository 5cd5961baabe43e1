package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/controller"
	"github.com/regroup-io/regroup/services/controller/controllertest"
	"github.com/regroup-io/regroup/services/discovery"
	"github.com/regroup-io/regroup/services/gateway"
	"github.com/regroup-io/regroup/services/registry"
	"github.com/regroup-io/regroup/services/rendezvous"
	"github.com/regroup-io/regroup/services/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef-test"

// world is a control plane in this process with a gateway, and a client of it.
type world struct {
	testing.TB
	ports   broker.Ports
	gateway *gateway.Gateway
	url     string
	client  *http.Client
	stop    func() // ends the gateway
	observe func(controller.Observation)
}

// start runs the four services and a gateway over one bus until the test ends.
func start(t testing.TB) *world {
	w := bare(t, nil)
	w.services()
	return w
}

// bare runs a gateway alone. change may be nil.
func bare(t testing.TB, change func(*gateway.Options)) *world {
	w := &world{TB: t, ports: memory.New().Ports()}
	o := gateway.Options{
		Ports: w.ports, Token: token, Webhooks: filepath.Join(t.TempDir(), "webhooks.json"), WebhooksPrivate: true, Version: "test", Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	w.ports = o.Ports
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.gateway, w.url = g, "http://"+l.Addr().String()
	w.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return g.Serve(ctx, l) })
	w.stop = cancel
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		cancel()
		if err := running.Wait(); err != nil {
			t.Errorf("the gateway ended: %v", err)
		}
	})
	w.eventually("ready", func() bool { return w.get("/readyz").status == http.StatusOK })
	return w
}

// services runs the control plane until the test ends.
func (w *world) services() {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	observe := w.observe
	if observe == nil {
		observe = func(controller.Observation) {}
	}
	must := func(s interface{ Run(context.Context) error }, err error) {
		if err != nil {
			w.Fatal(err)
		}
		running.Go(func() error { return s.Run(ctx) })
	}
	d, err := discovery.New(w.ports, discovery.DefaultConfig(), observe)
	must(d, err)
	s, err := scheduler.New(w.ports, observe)
	must(s, err)
	r, err := rendezvous.New(w.ports, observe)
	must(r, err)
	g, err := registry.New(w.ports, observe)
	must(g, err)
	w.Cleanup(func() {
		cancel()
		if err := running.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			w.Errorf("a service ended: %v", err)
		}
	})
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

func (a answer) problem(t testing.TB) gateway.Problem {
	t.Helper()
	var p gateway.Problem
	if media := a.header.Get("Content-Type"); media != "application/problem+json" {
		t.Fatalf("%d %s is %s, want a problem", a.status, a.body, media)
	}
	a.into(t, &p)
	if p.Status != a.status {
		t.Errorf("the problem says %d, the answer %d", p.Status, a.status)
	}
	return p
}

// do sends a request. Headers are given as "Name: value"; there is a token unless one begins with
// Authorization.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, bytes.TrimSpace(b)}
}

func (w *world) get(path string, headers ...string) answer {
	w.Helper()
	return w.do("GET", path, "", headers...)
}

// patience is how long a test waits for what must happen: more than a busy machine needs.
const patience = time.Minute

// eventually waits until a condition holds.
func (w *world) eventually(what string, fn func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := wait.Until(ctx, 5*time.Millisecond, func() (bool, error) { return fn(), nil }); err != nil {
		w.Fatalf("%s: not within %s", what, patience)
	}
}

// job stores a job as the registry does.
func (w *world) job(id ident.JobID) events.JobView {
	w.Helper()
	v := events.JobView{Job: id, State: events.JobStateRunning, Submitted: time.Now(), Generation: 2, Spec: spec.Job{Name: "j", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 2}}}
	controllertest.Record(w, w.ports, events.BucketJobs, string(id), 0, v)
	w.eventually("the job is there", func() bool { return w.get("/api/v1/jobs/"+string(id)).status == http.StatusOK })
	return v
}

// publish stores a fact.
func (w *world) publish(e events.Event) uint64 {
	w.Helper()
	if e.Source == "" {
		e.Source = "/regroup/registry"
	}
	e.Time = time.Now()
	m, err := cloudevent.Encode(e)
	if err != nil {
		w.Fatal(err)
	}
	at, err := w.ports.Log.Publish(w.Context(), m)
	if err != nil {
		w.Fatal(err)
	}
	return at
}
