package webhooks

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway/feed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a stream of facts, a feed and a receiver.
type rig struct {
	*testing.T
	ports broker.Ports
	feed  *feed.Feed
	file  string
	url   string

	mu      sync.Mutex
	got     []http.Header // of what was accepted
	at      []time.Time   // likewise
	opts    []http.Header // of requests for permission
	later   time.Duration // added to the time
	origin  string        // of the sender
	wait    string        // Retry-After of refusals
	grants  func(w http.ResponseWriter)
	bodies  []string
	asked   int
	answers func(n int) int // the status for the n-th request, from 1
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, ports: memory.New().Ports(), file: filepath.Join(t.TempDir(), "webhooks.json"), answers: func(int) int { return http.StatusNoContent }, grants: func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) }}
	r.feed = feed.New(r.ports, func(subject string, err error) {
		if err != nil {
			t.Logf("%s: %v", subject, err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return r.feed.Run(ctx) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // what is missing shows in the signature
		r.mu.Lock()
		defer r.mu.Unlock()
		if q.Method == http.MethodOptions {
			r.opts = append(r.opts, q.Header)
			r.grants(w)
			return
		}
		r.asked++
		status := r.answers(r.asked)
		if status < 300 {
			r.got, r.bodies, r.at = append(r.got, q.Header), append(r.bodies, string(body)), append(r.at, time.Now())
		}
		w.Header().Set("Location", "http://127.0.0.1:1/")
		if status >= 400 && r.wait != "" {
			w.Header().Set("Retry-After", r.wait)
		}
		w.WriteHeader(status)
	}))
	r.url = s.URL
	t.Cleanup(func() {
		cancel()
		_ = running.Wait() // its end is that of ctx
		s.Close()
	})
	if err := r.feed.Await(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// open runs hooks of the file until stop is called.
func (r *rig) open(private bool) (h *Hooks, stop func()) {
	r.Helper()
	h, err := Open(Options{
		File: r.file, AllowPrivate: private, Feed: r.feed, Logger: slog.New(slog.DiscardHandler), Now: r.now, Origin: r.origin, Retry: wait.Backoff{First: time.Millisecond, Max: 4 * time.Millisecond}, Attempts: 3,
	})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return h.Run(ctx) })
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); _ = running.Wait() }) } // its end is that of ctx
	r.Cleanup(stop)
	return h, stop
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.later)
}

func (r *rig) add(h *Hooks, types ...string) Created {
	r.Helper()
	c, err := h.Add(r.Context(), New{URL: r.url + "/take", Types: types})
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// facts publishes some, and waits until the feed has them.
func (r *rig) facts(from, to int) {
	r.Helper()
	last := uint64(0)
	for n := from; n <= to; n++ {
		var b events.Body = events.JobRemoved{Job: "demo-1"}
		if n%2 == 0 {
			b = events.IncidentOpened{Job: "demo-1", Incident: n}
		}
		m, err := cloudevent.Encode(events.Event{ID: fmt.Sprintf("fact-%d", n), Source: "/regroup/registry", Entity: "demo-1", Time: time.Now(), Body: b})
		if err != nil {
			r.Fatal(err)
		}
		if last, err = r.ports.Log.Publish(r.Context(), m); err != nil {
			r.Fatal(err)
		}
	}
	r.until("the feed has them", func() bool { return r.feed.Facts.Last() >= last })
}

func (r *rig) until(what string, true func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	if err := wait.Until(ctx, 2*time.Millisecond, func() (bool, error) { return true(), nil }); err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// ids returns those of the accepted facts.
func (r *rig) ids() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.got {
		all = append(all, h.Get("webhook-id"))
	}
	return all
}

func names(numbers ...int) (all []string) {
	for _, n := range numbers {
		all = append(all, fmt.Sprintf("fact-%d", n))
	}
	return all
}

// TestFactsAreDeliveredInOrder, those that are wanted, signed, from the creation of the hook on.
func TestFactsAreDeliveredInOrder(t *testing.T) {
	r := newRig(t)
	r.facts(1, 3)
	h, _ := r.open(true)
	c := r.add(h, "incident.*")
	r.facts(4, 9)
	r.until("three are there", func() bool { return len(r.ids()) == 3 })
	if got := r.ids(); !slices.Equal(got, names(4, 6, 8)) {
		t.Errorf("%v", got)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(c.Secret, secretPrefix))
	if err != nil {
		t.Fatal(err)
	}
	for i, header := range r.got {
		seconds, err := strconv.ParseInt(header.Get("webhook-timestamp"), 10, 64)
		if want := sign(key, header.Get("webhook-id"), time.Unix(seconds, 0), []byte(r.bodies[i])); err != nil || header.Get("webhook-signature") != want {
			t.Errorf("%v: the signature is wrong: %v", header, err)
		}
		e, err := cloudevent.Decode(map[string][]string{"Content-Type": {header.Get("Content-Type")}}, []byte(r.bodies[i]))
		if err != nil || e.ID != header.Get("webhook-id") {
			t.Errorf("%v: %s", err, r.bodies[i])
		}
	}
	text, err := json.Marshal(h.All())
	if err != nil || strings.Contains(string(text), base64.StdEncoding.EncodeToString(key)) {
		t.Errorf("the secret is shown: %s, %v", text, err)
	}
	if info, err := os.Stat(r.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := h.Remove(c.ID); err != nil {
		t.Fatal(err)
	}
	r.facts(10, 12)
	h2 := r.add(h)
	r.facts(13, 13)
	r.until("the last is there", func() bool { return slices.Contains(r.ids(), "fact-13") })
	if got := r.ids(); len(got) != 4 || h.All()[0].ID != h2.ID {
		t.Errorf("a removed hook got more: %v", got)
	}
}

// TestAFailureIsTriedAgain, and the order stays.
func TestAFailureIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.answers = func(n int) int {
		if n == 2 || n == 3 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
	h, _ := r.open(true)
	r.add(h)
	r.facts(1, 4)
	r.until("all are there", func() bool { return h.All()[0].Delivered == 4 })
	if x := h.All()[0]; !slices.Equal(r.ids(), names(1, 2, 3, 4)) || x.Failed != 2 || x.Delivered != 4 || len(x.Parked) != 0 {
		t.Errorf("%v: %+v", r.ids(), x)
	}
}

// TestWhatIsNotTakenIsSetAside after the last attempt, then each fact after one, until one is
// taken; a replay sends the rest.
func TestWhatIsNotTakenIsSetAside(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	away := true
	r.answers = func(int) int {
		mu.Lock()
		defer mu.Unlock()
		if away {
			return http.StatusFound // a redirection is none of our business
		}
		return http.StatusOK
	}
	h, _ := r.open(true)
	c := r.add(h)
	r.facts(1, 3)
	r.until("three are set aside", func() bool { return len(h.All()[0].Parked) == 3 })
	if x := h.All()[0]; x.Failed != 3+1+1 || !strings.Contains(x.LastError, "302") {
		t.Errorf("%+v", x)
	}
	if left, err := h.Replay(t.Context(), c.ID); errcode.Of(err) != errcode.Unavailable || left != 3 {
		t.Errorf("%d %v", left, err)
	}
	if err := h.Test(t.Context(), c.ID); errcode.Of(err) != errcode.Unavailable {
		t.Errorf("%v", err)
	}
	mu.Lock()
	away = false
	mu.Unlock()
	r.facts(4, 4)
	r.until("the next is there", func() bool { return len(r.ids()) == 1 })
	if left, err := h.Replay(t.Context(), c.ID); err != nil || left != 0 {
		t.Errorf("%d %v", left, err)
	}
	if err := h.Test(t.Context(), c.ID); err != nil {
		t.Error(err)
	}
	if got := r.ids(); !slices.Equal(got[:4], names(4, 1, 2, 3)) || !strings.HasPrefix(got[4], "test-") || len(h.All()[0].Parked) != 0 {
		t.Errorf("%v: %+v", got, h.All()[0])
	}
}

// TestNothingIsLostWithTheGateway: another one with the file goes on where it ended.
func TestNothingIsLostWithTheGateway(t *testing.T) {
	r := newRig(t)
	h, stop := r.open(true)
	r.add(h)
	r.facts(1, 2)
	r.until("two are there", func() bool { return h.All()[0].Delivered == 2 })
	stop()
	r.facts(3, 4)
	h, _ = r.open(true)
	r.until("all are there", func() bool { return len(r.ids()) >= 4 })
	r.until("its position is the last", func() bool { return h.All()[0].Position == r.feed.Facts.Last() })
	if !slices.Equal(r.ids(), names(1, 2, 3, 4)) {
		t.Errorf("%v", r.ids())
	}
}

// TestAKilledGatewayLosesNothing: what it had delivered after its last position was stored comes
// once more, with the same id.
func TestAKilledGatewayLosesNothing(t *testing.T) {
	r := newRig(t)
	h, stop := r.open(true)
	r.add(h)
	before, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	r.facts(1, 2)
	r.until("two are there", func() bool { return len(r.ids()) == 2 })
	stop()
	if err := os.WriteFile(r.file, before, 0o600); err != nil { // the killed one has stored nothing since
		t.Fatal(err)
	}
	r.facts(3, 3)
	r.open(true)
	r.until("all are there", func() bool { return slices.Contains(r.ids(), "fact-3") })
	if !slices.Equal(r.ids(), names(1, 2, 1, 2, 3)) {
		t.Errorf("%v", r.ids())
	}
}

// TestAReplayThatCannotReadForgetsNothing: only a fact that is no longer kept is given up.
func TestAReplayThatCannotReadForgetsNothing(t *testing.T) {
	r := newRig(t)
	r.answers = func(int) int { return http.StatusGone }
	h, _ := r.open(true)
	c := r.add(h)
	r.facts(1, 2)
	r.until("two are set aside", func() bool { return len(h.All()[0].Parked) == 2 })
	retiredSince, cancel := context.WithCancel(t.Context())
	cancel()
	if left, err := h.Replay(retiredSince, c.ID); err == nil || left != 2 || len(h.All()[0].Parked) != 2 {
		t.Errorf("%d left, %v: %+v", left, err, h.All()[0])
	}
}

// TestPrivateAddressesAreRefused unless they are allowed: the connection is not made.
func TestPrivateAddressesAreRefused(t *testing.T) {
	r := newRig(t)
	allowed, stop := r.open(true)
	r.add(allowed)
	stop()
	h, _ := r.open(false)
	if x := h.All()[0]; !strings.Contains(x.LastError, "--webhooks-private") {
		t.Errorf("one that was allowed before: %q", x.LastError)
	}
	r.facts(1, 1)
	r.until("it is set aside", func() bool { return len(h.All()[0].Parked) == 1 })
	if x := h.All()[0]; !strings.Contains(x.LastError, "--webhooks-private") || r.asked != 0 {
		t.Errorf("%d requests, %s", r.asked, x.LastError)
	}
	h.Lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		switch host {
		case "chat.lab":
			return []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::3")}, nil
		case "both.lab":
			return []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("8.8.8.8")}, nil
		}
		return nil, errors.New("no such host")
	}
	for u, names := range map[string]string{
		r.url: "127.0.0.1", "https://10.1.2.3/hook": "10.1.2.3", "http://[fd00::1]:8080/": "fd00::1", "https://chat.lab/hook": "of chat.lab: 10.0.0.3", "https://both.lab/": "", "https://later.lab/": "",
	} {
		c, err := h.Add(t.Context(), New{URL: u, Types: []string{"node.lost"}})
		if names == "" {
			if err != nil || h.Remove(c.ID) != nil {
				t.Errorf("%s: %v", u, err)
			}
			continue
		}
		if bad := errcode.FieldErrorsOf(err); len(bad) != 1 || bad[0].Path != "url" || !strings.HasPrefix(bad[0].Message, names) || !strings.Contains(bad[0].Message, "REGROUP_GATEWAY_WEBHOOKS_PRIVATE") {
			t.Errorf("%s: %v, want a refusal that names %s and the setting", u, err, names)
		}
	}
	if n := len(h.All()); n != 1 {
		t.Errorf("%d hooks, want the one of before", n)
	}
	for address, want := range map[string]bool{
		"127.0.0.1": false, "10.1.2.3": false, "192.168.0.1": false, "172.20.0.1": false, "169.254.169.254": false, "100.64.1.1": false, "0.0.0.0": false, "224.0.0.1": false,
		"::1": false, "fd00::1": false, "fe80::1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "198.18.0.1": false, "240.0.0.1": false, "255.255.255.255": false, "8.8.8.8": true, "2001:4860:4860::8888": true,
	} {
		if err := public(net.JoinHostPort(address, "443")); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestWrongRequests are refused with each fault.
func TestWrongRequests(t *testing.T) {
	r := newRig(t)
	h, _ := r.open(true)
	_, err := h.Add(r.Context(), New{URL: "file:///etc/passwd", Types: []string{"[", "job.*", "job.faild", "alert.*"}, Job: "No Job", Secret: "short"})
	var paths []string
	for _, f := range errcode.FieldErrorsOf(err) {
		paths = append(paths, f.Path)
	}
	if !slices.Equal(paths, []string{"url", "types[0]", "types[2]", "types[3]", "job", "secret"}) || !strings.Contains(err.Error(), `did you mean "job.failed"?`) {
		t.Errorf("%v: %v", paths, err)
	}
	for _, u := range []string{"", "https://", "https://user:password@host/", "//host/", "https://" + strings.Repeat("a", 2000)} {
		if _, err := h.Add(r.Context(), New{URL: u}); errcode.Of(err) != errcode.Invalid {
			t.Errorf("%q: %v", u, err)
		}
	}
	for range maxHooks {
		r.add(h)
	}
	if _, err := h.Add(r.Context(), New{URL: r.url}); errcode.Of(err) != errcode.Exhausted {
		t.Errorf("%v", err)
	}
	if err := h.Remove("nobody"); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v", err)
	}
	if _, err := h.Replay(t.Context(), "nobody"); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(r.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{File: r.file, Feed: r.feed}); errcode.Of(err) != errcode.Invalid {
		t.Errorf("%v", err)
	}
}
