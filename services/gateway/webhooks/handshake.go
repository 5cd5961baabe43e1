package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
)

// Handshake says whether the target of a hook is asked for its permission, as section 4 of the
// CloudEvents specification of web hooks describes.
type Handshake string

// Handshakes. Receivers of Standard Webhooks do not know the question.
const (
	HandshakeOptional Handshake = "optional" // it is asked, and gets facts whatever it answers
	HandshakeRequired Handshake = "required" // it gets facts after it has agreed
	HandshakeOff      Handshake = "off"      // it is not asked
)

// Headers of the specification.
const (
	headerOrigin        = "WebHook-Request-Origin"
	headerRate          = "WebHook-Request-Rate"
	headerAllowedOrigin = "WebHook-Allowed-Origin"
	headerAllowedRate   = "WebHook-Allowed-Rate"
)

// Times of the handshake.
const (
	askWithin     = 2 * time.Second // less than for facts: it precedes them
	askAgain      = 24 * time.Hour  // after an answer that is good enough to send
	askAgainSoon  = time.Minute     // after any other
	maxRetryAfter = 24 * time.Hour  // that a target can ask for at a time
)

// Target is what the target of a hook has answered.
type Target struct {
	Asked     time.Time `json:"asked,omitzero"`      // when it was asked last for its permission
	Origin    string    `json:"origin,omitempty"`    // for this sender
	Granted   bool      `json:"granted"`             // it has agreed
	Rate      int       `json:"rate,omitempty"`      // requests per minute that it has agreed to; 0 = any number
	Reason    string    `json:"reason,omitempty"`    // why it has not
	NotBefore time.Time `json:"not_before,omitzero"` // it was too busy, and asked to wait until then
	Gone      time.Time `json:"gone,omitzero"`       // when it answered that it is retired; it gets nothing more

	unanswered bool // no answer came
}

// notAgreed is the failure of an attempt that was not made.
type notAgreed struct{ reason string }

func (e notAgreed) Error() string {
	return "it has not agreed to get facts, and its handshake is required: " + e.reason
}

// due reports whether the target must be asked before the next request.
func (s *stored) due(origin string, now time.Time) bool {
	switch t := s.Target; {
	case s.Handshake == HandshakeOff:
		return false
	case t.Asked.IsZero() || t.Origin != origin || now.Before(t.Asked):
		return true
	case t.Granted || s.Handshake == HandshakeOptional && !t.unanswered:
		return now.Sub(t.Asked) >= askAgain
	default:
		return now.Sub(t.Asked) >= askAgainSoon
	}
}

// agree asks the target of a hook for its permission when that is due, or anyway. The error is
// notAgreed if it must get nothing.
func (h *Hooks) agree(ctx context.Context, s *stored, anyway bool) error {
	h.mu.Lock()
	due := s.due(h.Origin, h.Now()) || anyway && s.Handshake != HandshakeOff
	before := s.Target
	h.mu.Unlock()
	t := before
	if due {
		t = ask(ctx, h.client, &s.Hook, h.Origin, h.Now())
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h.mu.Lock()
		t.NotBefore, t.Gone = s.Target.NotBefore, s.Target.Gone
		s.Target, h.dirty = t, true
		h.mu.Unlock()
		if t.Granted != before.Granted || before.Asked.IsZero() {
			h.Logger.InfoContext(ctx, "the target of a webhook was asked for its permission", "url", s.shown(), "granted", t.Granted, "rate", t.Rate, "reason", t.Reason)
		}
	}
	if s.Handshake == HandshakeRequired && !t.Granted {
		return notAgreed{t.Reason}
	}
	return nil
}

// ask makes the validation request to the exact URL of a hook. Its status says nothing: many
// servers answer OPTIONS without agreeing to anything.
func ask(ctx context.Context, client *http.Client, hook *Hook, origin string, now time.Time) Target {
	t := Target{Asked: now.UTC(), Origin: origin}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodOptions, hook.URL, nil)
	var res *http.Response
	if err == nil {
		req.Header.Set("User-Agent", "regroup")
		req.Header.Set(headerOrigin, origin)
		if hook.Rate > 0 {
			req.Header.Set(headerRate, strconv.Itoa(hook.Rate))
		}
		res, err = client.Do(req)
	}
	if err != nil {
		t.Reason, t.unanswered = limits.Shorten("it does not answer OPTIONS: "+withoutURL(err).Error(), limits.Text.Max), true
		return t
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if t.Rate, err = granted(res, origin); err != nil {
		t.Reason = limits.Shorten(err.Error(), limits.Text.Max)
		return t
	}
	t.Granted = true
	return t
}

// granted returns the rate that an answer grants, 0 = any. The error says what is missing.
func granted(res *http.Response, origin string) (rate int, err error) {
	allowed := strings.TrimSpace(res.Header.Get(headerAllowedOrigin))
	switch {
	case allowed == "":
		return 0, fmt.Errorf("it answers OPTIONS with %s and without %s", res.Status, headerAllowedOrigin)
	case allowed != "*" && !strings.EqualFold(allowed, origin):
		return 0, fmt.Errorf("its %s is %q, and this sender is %q", headerAllowedOrigin, allowed, origin)
	}
	text := strings.TrimSpace(res.Header.Get(headerAllowedRate))
	if text == "" || text == "*" {
		return 0, nil
	}
	if rate, err = strconv.Atoi(text); err != nil || rate < 1 {
		return 0, fmt.Errorf("its %s is %q: neither * nor a number of requests per minute", headerAllowedRate, text)
	}
	return rate, nil
}

// interval is the time between two requests to a hook, by the rate that was asked for and the one
// that was granted.
func (s *stored) interval() time.Duration {
	rate := s.Rate
	if g := s.Target.Rate; g > 0 && (rate == 0 || g < rate) {
		rate = g
	}
	if rate == 0 {
		return 0
	}
	return time.Minute / time.Duration(rate)
}

// reserve returns how long to wait before the next request to a hook, and reserves it if that is
// not longer than most (negative = any time).
func (h *Hooks) reserve(s *stored, most time.Duration) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	at := now
	for _, t := range []time.Time{s.next, s.Target.NotBefore} {
		if t.After(at) {
			at = t
		}
	}
	if most >= 0 && at.Sub(now) > most {
		return at.Sub(now), false
	}
	s.next = at.Add(s.interval())
	return at.Sub(now), true
}

// note keeps what an attempt has shown of the target, which was as before when the attempt began: a
// success does not take back what the target has said to another one meanwhile.
func (h *Hooks) note(s *stored, before Target, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var refused *refusal
	switch {
	case err == nil:
		if s.Target.Gone.Equal(before.Gone) {
			s.Target.Gone = time.Time{}
		}
		if s.Target.NotBefore.Equal(before.NotBefore) {
			s.Target.NotBefore = time.Time{}
		}
	case !errors.As(err, &refused):
		return
	case refused.code == http.StatusGone:
		s.Target.Gone = h.Now().UTC()
	case refused.retryAfter > 0:
		s.Target.NotBefore = h.Now().Add(min(refused.retryAfter, maxRetryAfter)).UTC()
	}
	h.dirty = true
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// checkOrigin refuses what is no DNS name.
func checkOrigin(name string) error {
	bad := len(name) > 253 || name == ""
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(r rune) bool {
				return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
	}
	if bad {
		return errcode.Errorf(errcode.Invalid, "webhooks: the origin %q is no DNS name: write one that stands for this cluster, like train.example.org", limits.Shorten(name, limits.Word.Max))
	}
	return nil
}
