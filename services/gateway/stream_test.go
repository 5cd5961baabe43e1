package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/services/gateway"
)

// sse is an open stream of server-sent events.
type sse struct {
	testing.TB
	lines *bufio.Reader
	close func()
}

// item is one server-sent event.
type item struct{ id, kind, data string }

func (w *world) stream(path string, headers ...string) *sse {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", w.url+path, http.NoBody)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		w.Fatalf("%s: %d", path, res.StatusCode)
	}
	s := &sse{w, bufio.NewReader(res.Body), func() {
		cancel()
		res.Body.Close()
	}}
	w.Cleanup(s.close)
	return s
}

// next reads one event; keep-alives are passed over.
func (s *sse) next() (i item) {
	s.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			s.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); {
		case line == "" && i.data != "":
			return i
		case name == "id":
			i.id = value
		case name == "event":
			i.kind = value
		case name == "data":
			i.data = value
		}
	}
}

func (w *world) fact(job string, n int) uint64 {
	w.Helper()
	return w.publish(events.Event{ID: fmt.Sprintf("%s-%d", job, n), Entity: job, Number: uint64(n), Body: events.JobStopping{Job: ident.JobID(job), Reason: strconv.Itoa(n)}})
}

// TestStreamsResume: a client that comes again with its position misses nothing and gets nothing
// twice, whether the facts are in memory or only in the stream.
func TestStreamsResume(t *testing.T) {
	w := bare(t, nil)
	s := w.stream("/api/v1/events")
	first := w.fact("a", 1)
	i := s.next()
	if i.id != strconv.FormatUint(first, 10) || i.kind != "fact" || !strings.Contains(i.data, `"dev.regroup.job.stopping.v1"`) {
		t.Errorf("%+v", i)
	}
	s.close()
	for n := 2; n <= 400; n++ { // more than are sent at once
		w.fact("a", n)
	}
	s = w.stream("/api/v1/events", "Last-Event-ID: "+i.id)
	for n := 2; n <= 400; n++ {
		if i := s.next(); !strings.Contains(i.data, fmt.Sprintf(`"reason":"%d"`, n)) {
			t.Fatalf("the %dth after the position is %s", n, i.data)
		}
	}
	w.fact("a", 401)
	if i := s.next(); !strings.Contains(i.data, `"reason":"401"`) {
		t.Errorf("then %s", i.data)
	}
}

// TestAStreamThatIsFarBehind reads what is not in memory any more from the broker, and then goes on
// with what comes.
func TestAStreamThatIsFarBehind(t *testing.T) {
	w := bare(t, nil)
	long := strings.Repeat("x", 900)
	const n = 12000 // of about 1 KiB: more than are kept in memory
	for i := 1; i <= n; i++ {
		w.publish(events.Event{ID: strconv.Itoa(i), Entity: "a", Number: uint64(i), Body: events.JobStopping{Job: "a", Reason: fmt.Sprint(i, " ", long)}})
	}
	w.eventually("the newest is known", func() bool {
		return strings.Contains(string(w.get("/api/v1/system").body), fmt.Sprintf(`"facts":%d`, n))
	})
	s := w.stream("/api/v1/jobs/a/events")
	for i := 1; i <= n; i++ {
		if got := s.next(); !strings.Contains(got.data, fmt.Sprintf(`"reason":"%d `, i)) {
			t.Fatalf("number %d is %.200s", i, got.data)
		}
	}
	w.publish(events.Event{ID: "last", Entity: "a", Number: n + 1, Body: events.JobStopping{Job: "a", Reason: "last"}})
	if got := s.next(); !strings.Contains(got.data, `"reason":"last"`) {
		t.Errorf("then %.200s", got.data)
	}
}

// TestStreamsSelect facts by job and type, and end where they are asked to.
func TestStreamsSelect(t *testing.T) {
	w := bare(t, nil)
	w.fact("a", 1)
	w.fact("b", 1)
	w.publish(events.Event{ID: "f", Entity: "a", Number: 2, Body: events.JobFinishing{Job: "a"}})
	count := func(path string, headers ...string) int {
		t.Helper()
		a := w.get(path, append([]string{"Accept: application/x-ndjson"}, headers...)...)
		if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/x-ndjson" {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		if len(a.body) == 0 {
			return 0
		}
		return strings.Count(string(a.body), "\n") + 1
	}
	for path, want := range map[string]int{
		"/api/v1/events": 3, "/api/v1/jobs/a/events": 2, "/api/v1/events?type=job.finishing": 1, "/api/v1/events?type=job.*": 3, "/api/v1/events?type=node.*": 0,
		"/api/v1/events?after=2": 1, "/api/v1/events?type=dev.regroup.job.finishing.v1": 1,
	} {
		if n := count(path); n != want {
			t.Errorf("%s: %d, want %d", path, n, want)
		}
	}
	for path, want := range map[string]int{
		"/api/v1/jobs/none/events": http.StatusNotFound, "/api/v1/events?type=[": http.StatusBadRequest, "/api/v1/events?type=job.faild": http.StatusBadRequest, "/api/v1/events?after=x": http.StatusBadRequest, "/api/v1/events?follow=x": http.StatusBadRequest,
		"/api/v1/jobs/A..B/events": http.StatusBadRequest,
	} {
		if a := w.get(path); a.status != want || len(a.problem(t).Detail) == 0 {
			t.Errorf("%s: %d %s, want %d", path, a.status, a.body, want)
		}
	}
	if a := w.get("/api/v1/events", "Accept: image/png"); a.status != http.StatusNotAcceptable {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/api/v1/events", "Last-Event-ID: -1"); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestLiveChanges come beside the facts, without ids: they cannot be resumed.
func TestLiveChanges(t *testing.T) {
	w := start(t)
	s := w.stream("/api/v1/events?live=1")
	id := w.submit(job).Job
	seen := map[string]bool{}
	for !seen["fact"] || !seen["change"] {
		i := s.next()
		if i.kind == "change" && i.id == "" && strings.Contains(i.data, string(id)) || i.kind == "fact" && i.id != "" {
			seen[i.kind] = true
		}
	}
	p, err := bodies.Encode(events.Progress{Job: id, Generation: 1, Rank: 0, World: 1, Step: 7, Metrics: map[string]float64{"loss": 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.ports.Signals.Send(events.ProgressSubject(id), p); err != nil {
		t.Fatal(err)
	}
	for {
		if i := s.next(); i.kind == "progress" {
			if !strings.Contains(i.data, `"step":7`) || !strings.Contains(i.data, `"loss":0.5`) {
				t.Errorf("%+v", i)
			}
			return
		}
	}
}

// print stores a chunk of output.
func (w *world) print(node string, slot, rank int, text string) {
	w.Helper()
	_, err := w.ports.Log.Publish(w.Context(), broker.Message{
		Subject: events.LogSubject("j-0001", node, strconv.Itoa(slot)), Data: []byte(text),
		Header: map[string][]string{output.HeaderRank: {strconv.Itoa(rank)}, output.HeaderGeneration: {"2"}, output.HeaderStream: {"stdout"}},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestLogs reads output in each form, by rank and node, the newest lines, and live.
func TestLogs(t *testing.T) {
	w := bare(t, nil)
	w.job("j-0001")
	w.print("node-a", 0, 0, "one\ntwo\n")
	w.print("node-b", 0, 1, "three\n10%\r20%\n")
	text := func(path string) string {
		t.Helper()
		a := w.get(path)
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return string(a.body)
	}
	for path, want := range map[string]string{
		"":             "[node-a r0 g2] one\n[node-a r0 g2] two\n[node-b r1 g2] three\n[node-b r1 g2] 20%",
		"?rank=0":      "[node-a r0 g2] one\n[node-a r0 g2] two",
		"?rank=1-5":    "[node-b r1 g2] three\n[node-b r1 g2] 20%",
		"?node=node-a": "[node-a r0 g2] one\n[node-a r0 g2] two",
		"?tail=1":      "[node-b r1 g2] 20%",
		"?tail=0":      "",
	} {
		if got := text("/api/v1/jobs/j-0001/logs" + path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"?rank=x", "?rank=3-1", "?tail=x", "?follow=x", "?node=A_b"} {
		if a := w.get("/api/v1/jobs/j-0001/logs" + path); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	s := w.stream("/api/v1/jobs/j-0001/logs?follow=1&tail=1")
	last := s.next()
	if !strings.Contains(last.data, `"text":"20%"`) {
		t.Errorf("%+v", last)
	}
	w.print("node-a", 0, 0, "four\n")
	if i := s.next(); !strings.Contains(i.data, `"text":"four"`) || !strings.Contains(i.data, `"rank":0`) {
		t.Errorf("%+v", i)
	}
	s.close()
	w.print("node-a", 0, 0, "five\n")
	s = w.stream("/api/v1/jobs/j-0001/logs?follow=1&tail=1", "Last-Event-ID: "+last.id)
	for _, want := range []string{"four", "five"} {
		if i := s.next(); !strings.Contains(i.data, `"text":"`+want+`"`) {
			t.Errorf("resumed: %+v, want %s", i, want)
		}
	}
}

// TestLogsEndWithTheJob, after its last line: text and JSON lines end, and server-sent events tell
// of it.
func TestLogsEndWithTheJob(t *testing.T) {
	w := bare(t, nil)
	v := w.job("j-0001")
	w.print("node-a", 0, 0, "one\n")
	s := w.stream("/api/v1/jobs/j-0001/logs?follow=1")
	if i := s.next(); !strings.Contains(i.data, `"text":"one"`) {
		t.Errorf("%+v", i)
	}
	lines := make(chan string)
	go func() { lines <- string(w.get("/api/v1/jobs/j-0001/logs?follow=1").body) }()
	w.print("node-a", 0, 0, "two\n")
	v.State = events.JobStateFailed
	w.put(events.BucketJobs, "j-0001", v)
	if i := s.next(); !strings.Contains(i.data, `"text":"two"`) {
		t.Errorf("%+v", i)
	}
	if i := s.next(); i.kind != "end" || i.data != `{"state":"failed"}` {
		t.Errorf("%+v", i)
	}
	if got := <-lines; !strings.HasSuffix(got, "one\n[node-a r0 g2] two") {
		t.Errorf("%q", got)
	}
}

// TestAThousandStreams: many clients share one read, cost little memory, and all get each fact.
func TestAThousandStreams(t *testing.T) {
	w := bare(t, nil)
	w.client.Transport.(*http.Transport).MaxIdleConnsPerHost = -1
	const clients = 1000
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all := make([]*sse, clients)
	for i := range all {
		all[i] = w.stream("/api/v1/events")
	}
	w.fact("a", 1)
	began := time.Now()
	var got sync.WaitGroup
	for _, s := range all {
		got.Go(func() {
			if i := s.next(); i.id != "1" {
				t.Errorf("%+v", i)
			}
		})
	}
	got.Wait()
	took := time.Since(began)
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := (after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse) >> 20
	t.Logf("%d streams and their clients take %d MiB; a fact reached all after %s", clients, used, took)
	if used > 200 {
		t.Errorf("%d streams and their clients take %d MiB, at most 200 are allowed", clients, used)
	}
	for _, s := range all {
		s.close()
	}
	w.eventually("their places are free", func() bool { return strings.Contains(string(w.get("/api/v1/system").body), `"streams":0`) })
}

// TestTooManyStreams are refused.
func TestTooManyStreams(t *testing.T) {
	w := bare(t, nil)
	limit := w.gateway.LimitStreams(2)
	defer limit()
	a, b := w.stream("/api/v1/events"), w.stream("/api/v1/events")
	refused := w.get("/api/v1/events")
	if refused.status != http.StatusTooManyRequests || refused.problem(t).Code != errcode.Exhausted {
		t.Errorf("%d %s", refused.status, refused.body)
	}
	a.close()
	b.close()
	w.eventually("there is room again", func() bool {
		return w.get("/api/v1/events?follow=0", "Accept: application/x-ndjson").status == http.StatusOK
	})
}

// TestAStreamEndsWithItsGateway: clients are told by the end of the connection.
func TestAStreamEndsWithItsGateway(t *testing.T) {
	w := bare(t, nil)
	s := w.stream("/api/v1/events")
	done := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(s.lines)
		done <- err
	}()
	w.stop()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the stream is open after its gateway has ended")
	}
}

// TestALiveStreamSaysThatItIsAlive: a page that hears nothing for a while knows that it knows
// nothing.
func TestALiveStreamSaysThatItIsAlive(t *testing.T) {
	w := start(t)
	s := w.stream("/api/v1/events?live=1")
	var before time.Time
	for n := 0; n < 2; {
		i := s.next()
		if i.kind != "beat" {
			continue
		}
		n++
		var b gateway.Beat
		if err := json.Unmarshal([]byte(i.data), &b); err != nil {
			t.Fatal(err)
		}
		if !b.Connected || b.Since.IsZero() || b.Since.After(b.Now) || !b.Now.After(before) {
			t.Errorf("%+v after %s", b, before)
		}
		before = b.Now
	}
}

// TestFactsWithWhatTheySay has each fact with the sentence of the command line.
func TestFactsWithWhatTheySay(t *testing.T) {
	w := start(t)
	id := string(w.submit(job).Job)
	s := w.stream("/api/v1/jobs/" + id + "/events?after=0&text=1")
	i := s.next()
	var told gateway.Told
	if err := json.Unmarshal([]byte(i.data), &told); err != nil {
		t.Fatal(err)
	}
	if told.Family != "job" || !strings.HasPrefix(told.Text, "1-2 workers") || !strings.Contains(string(told.Event), `"specversion"`) || i.id == "" {
		t.Errorf("%+v with id %q", told, i.id)
	}
}
