package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/boot"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a gateway over a world until the test ends.
func start(t *testing.T, w commandtest.World, dir string) (*Gateway, client.Record) {
	t.Helper()
	p := &boot.Process{Config: boot.Config{StateDir: dir, Version: "test"}, Logger: slog.New(slog.DiscardHandler), Ports: w.Ports}
	r, err := OpenGateway(GatewayConfig{Listen: "0.0.0.0:0"}.AnyPort(), p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return r.Serve(ctx) })
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := running.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(client.RecordFile(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the record is left: %v", err)
		}
	})
	found, err := client.Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r, found
}

func askLink(t *testing.T, r client.Record) (string, error) {
	t.Helper()
	c, err := client.New(client.Options{URL: r.URL, Token: r.Token, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c.Link(t.Context())
}

func get(t *testing.T, r client.Record, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// TestARunningGatewayIsFound by its record, which only its user can read, and gives a link.
func TestARunningGatewayIsFound(t *testing.T) {
	dir := t.TempDir()
	if _, err := client.Find(dir); errcode.Of(err) != errcode.NotFound || !strings.Contains(err.Error(), "--dashboard") {
		t.Errorf("%v", err)
	}
	r, found := start(t, commandtest.New(t), dir)
	info, err := os.Stat(client.RecordFile(dir))
	if err != nil || info.Mode().Perm() != 0o600 || found.URL != r.URL || !strings.HasPrefix(r.URL, "http://127.0.0.1:") || len(found.Token) < 40 {
		t.Errorf("%v %+v %v", info, found, err)
	}
	link, err := askLink(t, found)
	if err != nil || !strings.HasPrefix(link, r.URL+"/login/") {
		t.Fatalf("%q, %v", link, err)
	}
	for link, want := range map[string]int{link: http.StatusSeeOther, r.Link(): http.StatusSeeOther, r.URL + "/login/x": http.StatusForbidden} {
		res, err := http.DefaultTransport.RoundTrip(must(http.NewRequestWithContext(t.Context(), "GET", link, http.NoBody)))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", link, res.StatusCode, want)
		}
	}
	if _, err := askLink(t, client.Record{URL: r.URL, Token: "wrong"}); !strings.Contains(err.Error(), "REGROUP_GATEWAY_TOKEN") {
		t.Errorf("%v", err)
	}
	older := filepath.Join(dir, "runs", "2")
	if err := writeRecord(client.Record{URL: "http://127.0.0.1:1", Token: "x"}, client.RecordFile(older)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(client.RecordFile(older), time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again, err := client.Find(dir); err != nil || again != found {
		t.Errorf("beside an older one: %+v, %v", again, err)
	}
	if _, err := askLink(t, client.Record{URL: "http://127.0.0.1:1", Token: "x"}); errcode.Of(err) != errcode.Unavailable {
		t.Errorf("%v", err)
	}
}

func must(r *http.Request, err error) *http.Request {
	if err != nil {
		panic(err)
	}
	return r
}

// TestPages are those of the command line, and the findings of a specification have their lines.
func TestPages(t *testing.T) {
	w := commandtest.New(t)
	id := ident.JobID("x-0001")
	w.Job(events.JobView{Job: id, State: events.JobStateWaiting, Submitted: clustertest.Now})
	w.Publish(events.Event{Entity: string(id), Number: 1, Body: events.JobSubmitted{Job: id}})
	w.Publish(events.Event{ID: "w", Source: "/regroup/agent/node-a/1", Entity: string(id), Body: events.WorkerStarted{WorkerRef: tables.WorkerRef{Job: id, Place: ident.Place{Node: "node-a"}, Attempt: 1}}})
	_, r := start(t, w, t.TempDir())
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := wait.Until(limit, 5*time.Millisecond, func() (bool, error) {
		status, _ := get(t, r, "GET", "/api/v1/jobs/x-0001", "")
		return status == http.StatusOK, nil
	}); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"explain": `"sentence":"x-0001 has waited for slots`, "summary": `"outcome":"waiting"`, "timeline": `"rank":null`,
	} {
		if status, text := get(t, r, "GET", "/api/v1/jobs/x-0001/"+page, ""); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %s", page, status, text, want)
		}
	}
	status, text := get(t, r, "POST", "/api/v1/jobs", "name: x\ncommand: [true]\nworkers: {min: 1, mx: 2}\n")
	var p struct {
		Errors []struct {
			Path string
			Line int
			Hint string
		}
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s", status, text)
	}
	found := false
	for _, e := range p.Errors {
		found = found || (e.Path == "workers.mx" && e.Line == 3 && strings.Contains(e.Hint, "max"))
	}
	if !found {
		t.Errorf("%s", text)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Type any }
			}
		}
	}
	_, text = get(t, r, "GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if kind := doc.Components.Schemas["Incarnation"].Properties["rank"].Type; !strings.Contains(strings.Join(words(kind), " "), "null") {
		t.Errorf("the rank of a timeline is described as %v", kind)
	}
}

func words(v any) (out []string) {
	all, _ := v.([]any)
	for _, x := range all {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
