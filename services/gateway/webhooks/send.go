package webhooks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/wait"
)

// sendWithin is how long one attempt may take.
const sendWithin = 5 * time.Second

// sender makes attempts. It follows no redirections, uses no proxy, and connects only to addresses
// of the public network, unless others are allowed: a hook must not reach what its author cannot.
func sender(allowPrivate bool) *http.Client {
	d := &net.Dialer{Timeout: sendWithin, Control: func(_, address string, _ syscall.RawConn) error {
		if allowPrivate {
			return nil
		}
		return public(address) // after the name was resolved
	}}
	return &http.Client{
		Timeout:       sendWithin,
		Transport:     &http.Transport{DialContext: d.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: sendWithin},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// special are ranges that netip takes for global, and that are not, or lead to others (RFC 6890).
var special = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"),  // between a provider and its customers
	netip.MustParsePrefix("192.0.0.0/24"),   // protocols
	netip.MustParsePrefix("198.18.0.0/15"),  // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved
	netip.MustParsePrefix("64:ff9b::/96"),   // IPv4 behind a translator
	netip.MustParsePrefix("64:ff9b:1::/48"), // the same, locally
	netip.MustParsePrefix("2002::/16"),      // 6to4
	netip.MustParsePrefix("2001::/32"),      // Teredo
}

// public refuses an address that is not of the public network.
func public(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return publicIP(at.Addr())
}

func publicIP(ip netip.Addr) error {
	ip = ip.Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return errcode.Errorf(errcode.Invalid, "%s is no address of the public network, and the gateway sends nothing there: REGROUP_GATEWAY_WEBHOOKS_PRIVATE=true in the environment of regroup up, or regroup serve gateway --webhooks-private, allows it", ip)
	}
	return nil
}

// literal refuses a host that is an address and not a public one.
func literal(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil //nolint:nilerr // it is a name
	}
	return publicIP(ip)
}

// lookupWithin bounds the look for the addresses of a new hook.
const lookupWithin = 2 * time.Second

// reachable refuses a host to which nothing could ever be sent: none of its addresses is public. A
// name that has none now may get some.
func (h *Hooks) reachable(ctx context.Context, host string) error {
	if h.AllowPrivate {
		return nil
	}
	if err := literal(host); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	all, err := h.Lookup(ctx, "ip", host)
	if err != nil || len(all) == 0 || slices.ContainsFunc(all, func(ip netip.Addr) bool { return publicIP(ip) == nil }) {
		return nil // attempts will say it
	}
	return errcode.Errorf(errcode.Invalid, "of %s: %w", host, publicIP(all[0]))
}

// refusal is an answer other than 2xx.
type refusal struct {
	code       int
	status     string
	retryAfter time.Duration // 0 = it does not say
}

func (e *refusal) Error() string { return "it answers " + e.status }

// retired is the failure of what is not sent, because the target gets nothing more.
func retired(retiredSince time.Time) error {
	return &refusal{code: http.StatusGone, status: "that it is retired (410 Gone) since " + retiredSince.Format(time.RFC3339)}
}

// attempt sends a body when it is the turn of the hook, if its target has agreed. If the turn is
// later than most from now, negative = any time, nothing is sent. asked asks the target once more.
func (h *Hooks) attempt(ctx context.Context, s *stored, id string, body []byte, most time.Duration, asked bool) error {
	if err := h.agree(ctx, s, asked); err != nil {
		return err
	}
	pause, now := h.reserve(s, most)
	if !now {
		return errcode.Errorf(errcode.Exhausted, "its target takes no more now: the next at %s", h.Now().Add(pause).UTC().Format(time.RFC3339))
	}
	// What the target says meanwhile, to a test or a replay, holds for this request too.
	for pause > 0 {
		if !wait.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
		h.mu.Lock()
		retiredSince := s.Target.Gone
		pause = s.Target.NotBefore.Sub(h.Now())
		h.mu.Unlock()
		if !retiredSince.IsZero() && !asked {
			return retired(retiredSince)
		}
		if err := h.agree(ctx, s, false); err != nil {
			return err
		}
	}
	h.mu.Lock()
	before := s.Target
	h.mu.Unlock()
	err := send(ctx, h.client, s, h.Origin, id, h.Now(), body)
	h.note(s, before, err)
	return err
}

// withoutURL returns what has gone wrong with a request, without its URL: that may have a secret.
func withoutURL(err error) error {
	if e := new(url.Error); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// send makes one request with a body.
func send(ctx context.Context, client *http.Client, s *stored, origin, id string, at time.Time, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if s.Handshake != HandshakeOff {
		req.Header.Set(headerOrigin, origin)
	}
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token)
	}
	if req.URL.Query().Has("access_token") {
		req.Header.Set("Cache-Control", "no-store")
	}
	for name, value := range map[string]string{
		"Content-Type": s.Form.mediaType(), "User-Agent": "regroup", "webhook-id": id,
		"webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": sign(s.Key, id, at, body),
	} {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return &refusal{code: res.StatusCode, status: res.Status, retryAfter: retryAfter(res.Header.Get("Retry-After"), at)}
	}
	return nil
}
