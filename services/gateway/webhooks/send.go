package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/regroup-io/regroup/events"
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
	ip := at.Addr().Unmap()
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return events.Errorf(events.Invalid, "%s is no address of the public network: allow it with --webhooks-private", ip)
	}
	return nil
}

// send makes one attempt to deliver a body.
func send(ctx context.Context, client *http.Client, to string, key []byte, id string, at time.Time, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "regroup", "webhook-id": id,
		"webhook-timestamp": strconv.FormatInt(at.Unix(), 10), "webhook-signature": sign(key, id, at, body),
	} {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("it answers %s", res.Status)
	}
	return nil
}
