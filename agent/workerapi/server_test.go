package workerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regroup-io/regroup/internal/workerprotocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	t     *testing.T
	s     *Server
	calls chan string
	stop  func()
	c     *http.Client
}

func newRig(t *testing.T, socket string, pollFor time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, calls: make(chan string, 16)}
	called := func(format string, args ...any) error {
		r.calls <- fmt.Sprintf(format, args...)
		return nil
	}
	s, err := New(Options{Socket: socket, PollFor: pollFor, Calls: Calls{
		Join:   func(w string, j workerprotocol.JoinRequest) { r.calls <- fmt.Sprintf("join %s %s", w, j.Address) },
		Report: func(w string, x workerprotocol.Report) error { return called("report %s %d", w, x.Step) },
		Commit: func(w string, x workerprotocol.CommitReport) error { return called("commit %s %d", w, x.Commit.Step) },
		Span:   func(w string, x workerprotocol.SpanReport) error { return called("span %s %s", w, x.Name) },
		Done:   func(w string, x workerprotocol.DoneReport) error { return called("done %s %d", w, x.Step) },
		Preempt: func(_ string, x workerprotocol.PreemptRequest) error {
			return called("preempt %s %s", x.Reason, x.Until.Format(time.RFC3339))
		},
		Environment: func(_ string, x workerprotocol.SubmitEnvironment) error {
			if x.Name == "refused" {
				return &Refusal{Status: 409, Code: "conflict", Message: "another machine"}
			}
			r.calls <- fmt.Sprintf("environment of %s in %s %q", x.Name, x.Dir, x.Variables)
			return nil
		},
		Peer: func(_ context.Context, w string, g uint64, rank int) (workerprotocol.Peer, error) {
			switch rank {
			case 1:
				return workerprotocol.Peer{Rank: rank, Address: "10.0.0.2:7"}, nil
			case 2:
				return workerprotocol.Peer{}, errors.New("boom")
			}
			return workerprotocol.Peer{}, &Refusal{Status: 404, Code: "not_found", Message: "no such rank"}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan bool), make(chan error, 1)
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.Path())
	}}
	r.s, r.c = s, &http.Client{Transport: tr}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		tr.CloseIdleConnections()
	}
	t.Cleanup(r.stop)
	return r
}

func (r *rig) do(method, path, token, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.c.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
	}
	return resp.StatusCode, string(b)
}

func TestRefusalsAreClear(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	r.s.Admit("secret", "w1")
	big := `{"metrics":{"` + strings.Repeat("x", maxBody) + `":1}}`
	for _, c := range []struct {
		name, method, path, token, body string
		status                          int
		code, words                     string
	}{
		{"no token", "POST", workerprotocol.PathReport, "", "{}", 401, "invalid", "REGROUP_TOKEN"},
		{"unknown token", "POST", workerprotocol.PathReport, "guess", "{}", 403, "fenced", "ended process"},
		{"wrong method", "GET", workerprotocol.PathJoin, "secret", "", 405, "invalid", "takes POST"},
		{"wrong path", "GET", "/v2/join", "secret", "", 404, "not_found", "/v1/join"},
		{"bad JSON", "POST", workerprotocol.PathReport, "secret", "{", 400, "invalid", "body"},
		{"unknown field", "POST", workerprotocol.PathReport, "secret", `{"stepp":1}`, 400, "invalid", "stepp"},
		{"two objects", "POST", workerprotocol.PathReport, "secret", `{}{}`, 400, "invalid", "after"},
		{"too large", "POST", workerprotocol.PathReport, "secret", big, 413, "too_large", "1048576"},
		{"no generation", "GET", workerprotocol.PathChanges, "secret", "", 400, "invalid", "generation"},
		{"bad rank", "GET", workerprotocol.PathPeers + "?generation=1&rank=-1", "secret", "", 400, "invalid", "rank"},
		{"no such rank", "GET", workerprotocol.PathPeers + "?generation=1&rank=3", "secret", "", 404, "not_found", "no such rank"},
		{"our own fault", "GET", workerprotocol.PathPeers + "?generation=1&rank=2", "secret", "", 500, "internal", "boom"},
	} {
		status, body := r.do(c.method, c.path, c.token, c.body)
		var e workerprotocol.Error
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Errorf("%s: %q: %v", c.name, body, err)
		}
		if status != c.status || e.Code != c.code || !strings.Contains(e.Message, c.words) {
			t.Errorf("%s: %d %+v", c.name, status, e)
		}
	}
	if len(r.calls) != 0 {
		t.Errorf("a refused call was handed over: %s", <-r.calls)
	}
}

// TestNoticeNeedsNoToken: a notice comes from the host; any process that may open the socket may
// send it, without token and body.
func TestNoticeNeedsNoToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	for body, want := range map[string]string{
		"": "preempt  0001-01-01T00:00:00Z", `{"reason":"spot","until":"2026-01-02T12:00:00Z"}`: "preempt spot 2026-01-02T12:00:00Z",
	} {
		if status, b := r.do("POST", workerprotocol.PathPreempt, "", body); status != 202 {
			t.Errorf("%q: %d %s", body, status, b)
		}
		if got := <-r.calls; got != want {
			t.Errorf("%q: handed over %q, want %q", body, got, want)
		}
	}
	for method, body := range map[string]string{"GET": "", "POST": "{"} {
		if status, _ := r.do(method, workerprotocol.PathPreempt, "", body); status != 405 && status != 400 {
			t.Errorf("%s %q: %d", method, body, status)
		}
	}
}

// TestAnEnvironmentNeedsNoToken: it is from no worker.
func TestAnEnvironmentNeedsNoToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	const origin = `"origin":"0123456789abcdef0123456789abcdef"`
	if status, b := r.do("POST", workerprotocol.PathEnvironment, "", `{`+origin+`,"name":"mnist","dir":"/home/ada","variables":["QT1i","Qz3/"]}`); status != 204 {
		t.Errorf("%d %s", status, b)
	}
	if got, want := <-r.calls, `environment of mnist in /home/ada ["A=b" "C=\xff"]`; got != want {
		t.Errorf("handed over %s, want %s", got, want)
	}
	for body, want := range map[string]int{
		`{` + origin + `,"name":"refused","dir":"/"}`: 409, `{`: 400, `{}`: 400, `{"origin":"../../../../etc/passwd.........."}`: 400,
		`{` + origin + `,"dir":"here"}`: 400, `{` + origin + `,"dir":"/","variables":["QQ=="]}`: 400, `{` + origin + `,"dir":"/","variables":["QT0A"]}`: 400,
	} {
		if status, b := r.do("POST", workerprotocol.PathEnvironment, "", body); status != want {
			t.Errorf("%s: %d %s, want %d", body, status, b, want)
		}
	}
}

func TestReportsArePassedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	r.s.Admit("secret", "w1")
	for path, want := range map[string]string{workerprotocol.PathReport: "report w1 4", workerprotocol.PathDone: "done w1 4", workerprotocol.PathCommit: "commit w1 0"} {
		body := `{"step":4}`
		if path == workerprotocol.PathCommit {
			body = `{"commit":{}}`
		}
		if status, b := r.do("POST", path, "secret", body); status != 204 || b != "" {
			t.Errorf("%s: %d %s", path, status, b)
		}
		if got := <-r.calls; got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	if status, b := r.do("GET", workerprotocol.PathPeers+"?generation=1&rank=1", "secret", ""); status != 200 || !strings.Contains(b, "10.0.0.2:7") {
		t.Errorf("peer: %d %s", status, b)
	}
	r.s.Dismiss("w1")
	if status, _ := r.do("POST", workerprotocol.PathReport, "secret", "{}"); status != 403 {
		t.Errorf("a dismissed worker: %d", status)
	}
}

func TestJoinWaitsForItsAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	r.s.Admit("secret", "w1")
	r.s.Answer("w1", workerprotocol.Assignment{Verdict: workerprotocol.Removed}) // no join waits: dropped
	done := make(chan string, 1)
	for _, answer := range []func(){
		func() { r.s.Answer("w1", workerprotocol.Assignment{Verdict: workerprotocol.Assigned, Rank: 2}) },
		func() { r.s.Refuse("w1", &Refusal{Status: 409, Code: "fenced", Message: "too late"}) },
	} {
		go func() {
			s, b := r.do("POST", workerprotocol.PathJoin, "secret", `{"address":"h:1"}`)
			done <- fmt.Sprint(s, b)
		}()
		if got := <-r.calls; got != "join w1 h:1" {
			t.Errorf("call %q", got)
		}
		answer()
		got := <-done
		if !strings.Contains(got, `"rank":2`) && !strings.Contains(got, "too late") {
			t.Errorf("answer %s", got)
		}
	}
}

func TestPollsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Millisecond)
	r.s.Admit("secret", "w1")
	for _, c := range [][2]string{{"POST", workerprotocol.PathJoin}, {"GET", workerprotocol.PathChanges + "?generation=1"}} {
		if status, b := r.do(c[0], c[1], "secret", "{}"); status != 204 || b != "" {
			t.Errorf("%s: %d %s", c[1], status, b)
		}
	}
}

func TestChangesAreKeptUntilPolledAndLossesAreFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	r.s.Admit("secret", "w1")
	r.s.Push("w1", workerprotocol.Change{Kind: workerprotocol.ChangeLost, Generation: 1, Rank: 9})
	r.s.Push("w1", workerprotocol.Change{Kind: workerprotocol.ChangePlanned, Generation: 2})
	r.s.Push("w1", workerprotocol.Change{Kind: workerprotocol.ChangeLost, Generation: 2, Rank: 3})
	for _, want := range []string{workerprotocol.ChangeLost, workerprotocol.ChangePlanned} {
		if _, b := r.do("GET", workerprotocol.PathChanges+"?generation=2", "secret", ""); !strings.Contains(b, `"kind":"`+want+`"`) || strings.Contains(b, `"rank":9`) {
			t.Errorf("want %s: %s", want, b)
		}
	}
	done := make(chan string, 1)
	go func() { _, b := r.do("GET", workerprotocol.PathChanges+"?generation=3", "secret", ""); done <- b }()
	r.s.Push("w1", workerprotocol.Change{Kind: workerprotocol.ChangeLost, Generation: 3, Rank: 1})
	if b := <-done; !strings.Contains(b, `"generation":3`) {
		t.Errorf("late change: %s", b)
	}
	// A waiting poll ends with its worker.
	go func() {
		s, _ := r.do("GET", workerprotocol.PathChanges+"?generation=4", "secret", "")
		done <- fmt.Sprint(s)
	}()
	r.s.Dismiss("w1")
	if s := <-done; s != "204" && s != "403" {
		t.Errorf("poll of a dismissed worker: %s", s)
	}
}

func TestEndOfTheServerEndsItsPolls(t *testing.T) {
	t.Parallel()
	r := newRig(t, filepath.Join(t.TempDir(), "a.sock"), time.Minute)
	r.s.Admit("secret", "w1")
	done := make(chan int, 1)
	go func() { s, _ := r.do("POST", workerprotocol.PathJoin, "secret", `{"address":"h:1"}`); done <- s }()
	<-r.calls
	r.stop()
	if s := <-done; s != 204 {
		t.Errorf("status %d", s)
	}
}

func TestSocketIsPrivateAndShortEnough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("d", 120), "agent.sock")
	r := newRig(t, long, time.Minute)
	if len(r.s.Path()) > maxPath {
		t.Errorf("path of %d characters", len(r.s.Path()))
	}
	i, err := os.Stat(r.s.Path())
	if err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	// A socket file of an earlier agent is replaced.
	stale := filepath.Join(dir, "stale.sock")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newRig(t, stale, time.Minute)
}
