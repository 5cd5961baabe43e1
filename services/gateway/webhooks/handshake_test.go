package webhooks

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
)

// grant answers a request for permission.
func grant(origin, rate string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		if origin != "" {
			w.Header().Set("WebHook-Allowed-Origin", origin)
		}
		if rate != "" {
			w.Header().Set("WebHook-Allowed-Rate", rate)
		}
		w.Header().Set("Allow", "POST")
	}
}

// set changes what the receiver does.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *rig) asks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.opts)
}

// TestReceiversThatKnowNoHandshakeGetFacts: those of Standard Webhooks, whatever they answer to
// OPTIONS, also nothing; they are asked once.
func TestReceiversThatKnowNoHandshakeGetFacts(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		reason string
	}{
		"405":          {func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) }, "405 Method Not Allowed and without WebHook-Allowed-Origin"},
		"as CORS":      {func(w http.ResponseWriter) { w.Header().Set("Access-Control-Allow-Origin", "*") }, "200 OK and without"},
		"another one":  {grant("other.example", "*"), `"other.example", and this sender is "regroup"`},
		"a wrong rate": {grant("*", "fast"), `"fast": neither *`},
		"no answer":    {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, "does not answer OPTIONS"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.grants = c.answer
			h, _ := r.open(true)
			r.add(h)
			r.facts(1, 3)
			r.until("three are there", func() bool { return len(r.ids()) == 3 })
			if x := h.All()[0]; x.Handshake != HandshakeOptional || x.Target.Granted || !strings.Contains(x.Target.Reason, c.reason) || x.Failed != 0 || r.asks() != 1 {
				t.Errorf("asked %d times: %+v", r.asks(), x)
			}
		})
	}
}

// TestATargetIsAskedForItsPermission before the first fact, with the name that each fact has too;
// again after a day, for another name, and not for a restart.
func TestATargetIsAskedForItsPermission(t *testing.T) {
	r := newRig(t)
	r.grants, r.origin = grant("Train.Example.org", ""), "train.example.org"
	h, stop := r.open(true)
	if _, err := h.Add(r.Context(), New{URL: r.url + "/take?access_token=a", Token: "b.c-d_e==", Rate: 60_000}); err != nil {
		t.Fatal(err)
	}
	r.facts(1, 2)
	r.until("two are there", func() bool { return len(r.ids()) == 2 && h.All()[0].Delivered == 2 })
	if got := r.opts[0]; r.asks() != 1 || got.Get("WebHook-Request-Origin") != "train.example.org" || got.Get("WebHook-Request-Rate") != "60000" || got.Get("webhook-signature") != "" || got.Get("Authorization") != "" {
		t.Errorf("asked %d times: %v", r.asks(), got)
	}
	for _, header := range r.got {
		if header.Get("WebHook-Request-Origin") != "train.example.org" || header.Get("Authorization") != "Bearer b.c-d_e==" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("a fact without the name of its sender, or its token: %v", header)
		}
	}
	if text, err := json.Marshal(h.All()); err != nil || strings.Contains(string(text), "b.c-d_e") {
		t.Errorf("the token is shown: %s, %v", text, err)
	}
	if x := h.All()[0].Target; !x.Granted || x.Reason != "" || x.Rate != 0 {
		t.Errorf("%+v", x)
	}
	stop()
	h, stop = r.open(true)
	r.facts(3, 3)
	r.until("three are there", func() bool { return len(r.ids()) == 3 })
	if r.asks() != 1 {
		t.Errorf("asked again after a restart: %d times", r.asks())
	}
	r.set(func() { r.later = 25 * time.Hour })
	r.facts(4, 4)
	r.until("four are there", func() bool { return len(r.ids()) == 4 && r.asks() == 2 && h.All()[0].Delivered == 4 })
	stop()
	r.origin = "other.example.org"
	h, _ = r.open(true)
	r.facts(5, 5)
	r.until("all are there", func() bool { return len(r.ids()) == 5 && r.asks() == 3 })
	if x := h.All()[0].Target; x.Granted || x.Origin != "other.example.org" {
		t.Errorf("%+v", x)
	}
	for name, ok := range map[string]bool{"a": true, "a-1.B.example": true, "": true, "a..b": false, "-a": false, "a b": false, "a\r\nX: y": false, strings.Repeat("a", 64): false} {
		if _, err := Open(Options{Feed: r.feed, Origin: name}); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAGrantedRateIsKept, or the lower one that was asked for.
func TestAGrantedRateIsKept(t *testing.T) {
	const pause = 40 * time.Millisecond // of 1500 a minute
	for name, c := range map[string]struct {
		asked   int
		granted string
	}{"granted": {0, "1500"}, "less was granted": {60_000, "1500"}, "less was asked for": {1500, "60000"}, "any number": {1500, "*"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.grants = grant("*", c.granted)
			h, _ := r.open(true)
			if _, err := h.Add(r.Context(), New{URL: r.url, Rate: c.asked}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now() // and not r.at[0]: the receiver may be slow to see the first
			r.facts(1, 4)
			r.until("all are there", func() bool { return len(r.ids()) == 4 })
			if took := r.at[3].Sub(begin); took < 3*pause {
				t.Errorf("three more than the first within %s", took)
			}
		})
	}
	r := newRig(t)
	r.grants = grant("*", "1")
	h, _ := r.open(true)
	c := r.add(h)
	if err := h.Test(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Test(t.Context(), c.ID); errcode.Of(err) != errcode.Exhausted || len(r.ids()) != 1 {
		t.Errorf("a second within the minute: %v", err)
	}
}

// TestARequiredHandshakeRefuses: no webhook is made for a target that does not agree, and one that
// agrees no more gets nothing until it does.
func TestARequiredHandshakeRefuses(t *testing.T) {
	r := newRig(t)
	h, _ := r.open(true)
	n := New{URL: r.url, Handshake: HandshakeRequired}
	for answer, message := range map[string]func(http.ResponseWriter){
		"without WebHook-Allowed-Origin": grant("", "10"), "this sender is": grant("other.example", "*"), "neither *": grant("regroup", "-1"),
		"does not answer OPTIONS": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		r.set(func() { r.grants = message })
		if _, err := h.Add(t.Context(), n); !OfTarget(err) || errcode.Of(err) != errcode.Unavailable || !strings.Contains(err.Error(), answer) {
			t.Errorf("%q: %v", answer, err)
		}
	}
	if len(h.All()) != 0 {
		t.Fatalf("%+v", h.All())
	}
	r.set(func() { r.grants = grant("regroup", "*") })
	c, err := h.Add(t.Context(), n)
	if err != nil || !c.Target.Granted {
		t.Fatalf("%+v, %v", c, err)
	}
	before := r.asks()
	r.facts(1, 1)
	r.until("one is there", func() bool { return len(r.ids()) == 1 })
	r.set(func() {
		r.later = 25 * time.Hour
		r.grants = grant("", "")
	})
	r.facts(2, 4)
	r.until("three are set aside", func() bool { return len(h.All()[0].Parked) == 3 })
	x := h.All()[0]
	if why := "its handshake is required: it answers OPTIONS with 200 OK and without"; !strings.Contains(x.LastError, why) || !strings.Contains(x.Parked[2].Error, why) || len(r.ids()) != 1 {
		t.Errorf("%d arrived: %+v", len(r.ids()), x)
	}
	if asked := r.asks() - before; asked != 1 {
		t.Errorf("within a minute it was asked %d times", asked)
	}
	if left, err := h.Replay(t.Context(), c.ID); left != 3 || !OfTarget(err) {
		t.Errorf("%d left, %v", left, err)
	}
	r.set(func() { r.grants = grant("*", "") })
	if left, err := h.Replay(t.Context(), c.ID); err != nil || left != 0 || !slices.Equal(r.ids(), names(1, 2, 3, 4)) {
		t.Errorf("%d left, %v: %v", left, err, r.ids())
	}
	r.set(func() { r.later += 2 * time.Minute })
	r.facts(5, 5)
	r.until("the next is there", func() bool { return len(r.ids()) == 5 })
}

// TestAWebhookWithoutHandshake neither asks nor names its sender, also after a restart.
func TestAWebhookWithoutHandshake(t *testing.T) {
	r := newRig(t)
	h, stop := r.open(true)
	if _, err := h.Add(r.Context(), New{URL: r.url, Handshake: HandshakeOff}); err != nil {
		t.Fatal(err)
	}
	r.facts(1, 1)
	r.until("it is there", func() bool { return len(r.ids()) == 1 })
	if r.asks() != 0 || r.got[0].Get("WebHook-Request-Origin") != "" {
		t.Errorf("asked %d times: %v", r.asks(), r.got[0])
	}
	stop()
	h, _ = r.open(true)
	if x := h.All()[0]; x.Handshake != HandshakeOff {
		t.Errorf("%+v", x)
	}
	_, err := h.Add(t.Context(), New{URL: r.url, Handshake: "maybe", Rate: -1, Token: "a b"})
	var paths []string
	for _, f := range errcode.FieldErrorsOf(err) {
		paths = append(paths, f.Path)
	}
	if !slices.Equal(paths, []string{"handshake", "rate", "token"}) {
		t.Errorf("%v: %v", paths, err)
	}
}

// TestATargetThatIsBusyIsLeftAlone for as long as it says.
func TestATargetThatIsBusyIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.answers = func(n int) int {
		if n == 1 {
			return http.StatusTooManyRequests
		}
		return http.StatusNoContent
	}
	r.wait = "1"
	h, _ := r.open(true)
	c := r.add(h)
	begin := time.Now()
	r.facts(1, 1)
	r.until("it was refused", func() bool { return h.All()[0].Failed == 1 })
	r.until("it is there", func() bool { return len(r.ids()) == 1 })
	if took := r.at[0].Sub(begin); took < time.Second {
		t.Errorf("sent again after %s", took)
	}
	r.set(func() {
		r.wait = time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
		r.answers = func(int) int { return http.StatusServiceUnavailable }
	})
	if err := h.Test(t.Context(), c.ID); !OfTarget(err) {
		t.Errorf("%v", err)
	}
	if err := h.Test(t.Context(), c.ID); errcode.Of(err) != errcode.Exhausted || r.asked != 3 {
		t.Errorf("%d requests, %v", r.asked, err)
	}
}

// TestARetiredTargetGetsNothing more, until a test or a replay has shown that it takes facts again.
func TestARetiredTargetGetsNothing(t *testing.T) {
	r := newRig(t)
	r.answers = func(int) int { return http.StatusGone }
	h, _ := r.open(true)
	c := r.add(h)
	r.facts(1, 3)
	r.until("all are set aside", func() bool { return len(h.All()[0].Parked) == 3 })
	if x := h.All()[0]; r.asked != 1 || x.Failed != 1 || !strings.Contains(x.LastError, "retired (410 Gone) since") || x.Target.Gone.IsZero() {
		t.Errorf("%d requests: %+v", r.asked, x)
	}
	r.set(func() { r.answers = func(int) int { return http.StatusOK } })
	if left, err := h.Replay(t.Context(), c.ID); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
	r.facts(4, 4)
	r.until("the next is there", func() bool { return len(r.ids()) == 4 })
}

// TestWhatATargetSaysMeanwhileHolds for a fact that waits for its turn.
func TestWhatATargetSaysMeanwhileHolds(t *testing.T) {
	for name, c := range map[string]struct {
		message *refusal
		parked  int
	}{
		"it is retired": {&refusal{code: http.StatusGone}, 1},
		"it is busy":    {&refusal{code: http.StatusServiceUnavailable, retryAfter: 2 * time.Second}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			// The second must still wait when the target says it. On a busy machine that takes a
			// longer pause.
			for rate := 120; ; rate /= 2 {
				r := newRig(t)
				pause := time.Minute / time.Duration(rate)
				r.grants = grant("*", strconv.Itoa(rate))
				h, _ := r.open(true)
				r.add(h)
				r.facts(1, 2)
				s := h.all[0]
				begin := time.Now()
				waits := func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return s.next.After(h.Now().Add(pause + pause/5))
				}
				r.until("the first is there, and the second waits", func() bool { return len(r.ids()) == 2 || len(r.ids()) == 1 && waits() })
				h.note(s, Target{}, c.message)
				h.mu.Lock()
				late := !h.Now().Before(s.next.Add(-pause))
				h.mu.Unlock()
				if late && rate > 4 {
					continue
				}
				r.until("the second is there, or set aside", func() bool { return len(r.ids()) == 2 || len(h.All()[0].Parked) > 0 })
				if got := len(h.All()[0].Parked); got != c.parked {
					t.Errorf("%d are set aside, want %d", got, c.parked)
				}
				if took := time.Since(begin); c.message.retryAfter > 0 && took < c.message.retryAfter {
					t.Errorf("it was sent after %s", took)
				}
				return
			}
		})
	}
}

// TestASuccessDoesNotTakeBackARefusal that the target has given to another request meanwhile.
func TestASuccessDoesNotTakeBackARefusal(t *testing.T) {
	h, _ := newRig(t).open(true)
	var s stored
	for _, message := range []*refusal{{code: http.StatusGone}, {code: http.StatusServiceUnavailable, retryAfter: time.Hour}} {
		before := s.Target
		h.note(&s, before, message)
		refused := s.Target
		if h.note(&s, before, nil); s.Target != refused {
			t.Errorf("%d: %+v after a success of before, want %+v", message.code, s.Target, refused)
		}
		if h.note(&s, refused, nil); !s.Target.Gone.IsZero() || !s.Target.NotBefore.IsZero() {
			t.Errorf("%d: %+v after a success", message.code, s.Target)
		}
	}
}
