package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/services/gateway"
)

// TestTheTokenIsNeeded for everything but what says so.
func TestTheTokenIsNeeded(t *testing.T) {
	w := bare(t, nil)
	var doc struct {
		Paths map[string]map[string]struct {
			Security *[]any `json:"security"`
		} `json:"paths"`
	}
	w.get("/openapi.json").into(t, &doc)
	operations := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			operations++
			open := op.Security != nil
			for _, with := range []string{"", "Bearer ", "Bearer wrong", "Basic " + token, "Bearer " + token + "x", "Bearer " + token[1:]} {
				a := w.do(strings.ToUpper(method), strings.NewReplacer("{job}", "x", "{node}", "x", "{webhook}", "x").Replace(path), "", "Authorization: "+with)
				if refused := a.status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") != ""; refused == open {
					t.Errorf("%s %s with %q: %d, open = %v", method, path, with, a.status, open)
				}
			}
		}
	}
	if operations < 20 {
		t.Errorf("only %d operations were tried", operations)
	}
	for _, path := range []string{"/", "/app.js", "/style.css", "/vendor/preact.mjs"} {
		if a := w.get(path, "Authorization: "); a.status != http.StatusOK || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestALinkWorksOnce and its session has a cookie that no script can read and no other site sends.
func TestALinkWorksOnce(t *testing.T) {
	w := bare(t, nil)
	var link gateway.Link
	if a := w.do("POST", "/api/v1/links", ""); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	} else if a.into(t, &link); time.Until(link.Until) > 6*time.Minute {
		t.Errorf("it lives until %s", link.Until)
	}
	a := w.get(link.Path, "Authorization: ")
	cookie := a.header.Get("Set-Cookie")
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") || strings.Contains(cookie, token) {
		t.Errorf("%d %v", a.status, a.header)
	}
	pair, _, _ := strings.Cut(cookie, ";")
	if a := w.get("/api/v1/jobs", "Authorization: ", "Cookie: "+pair); a.status != http.StatusOK {
		t.Errorf("with the cookie: %d", a.status)
	}
	for _, path := range []string{link.Path, "/login/wrong", "/login/" + strings.Repeat("x", 5000)} {
		if a := w.get(path, "Authorization: "); a.status != http.StatusForbidden || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%.40s: %d", path, a.status)
		}
	}
	if a := w.do("DELETE", "/api/v1/session", "", "Authorization: ", "Cookie: "+pair); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.get("/api/v1/jobs", "Authorization: ", "Cookie: "+pair); a.status != http.StatusUnauthorized {
		t.Errorf("after the end of the session: %d", a.status)
	}
}

// TestSessionsEnd after their time, and links too.
func TestSessionsEnd(t *testing.T) {
	now := time.Now()
	w := bare(t, func(o *gateway.Options) { o.Now = func() time.Time { return now } })
	a := w.do("POST", "/api/v1/session", `{"token": "`+token+`"}`, "Authorization: ")
	pair, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	if a := w.get("/api/v1/jobs", "Authorization: ", "Cookie: "+pair); a.status != http.StatusOK {
		t.Fatalf("%d", a.status)
	}
	if a := w.do("POST", "/api/v1/session", `{"token": "wrong"}`, "Authorization: "); a.status != http.StatusUnauthorized {
		t.Errorf("%d", a.status)
	}
	old := w.gateway.LinkPath()
	now = now.Add(13 * time.Hour)
	if a := w.get("/api/v1/jobs", "Authorization: ", "Cookie: "+pair); a.status != http.StatusUnauthorized {
		t.Errorf("after 13 hours: %d", a.status)
	}
	if a := w.get(old, "Authorization: "); a.status != http.StatusForbidden {
		t.Errorf("a link after 13 hours: %d", a.status)
	}
}

// TestForeignPagesAreRefused: a browser tells where a request comes from, and under which name.
func TestForeignPagesAreRefused(t *testing.T) {
	w := start(t)
	at, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{[]string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		{[]string{"Sec-Fetch-Site: same-site"}, http.StatusForbidden},
		{[]string{"Origin: https://evil.example"}, http.StatusForbidden},
		{[]string{"Origin: null"}, http.StatusForbidden},
		{[]string{"Host: evil.example"}, http.StatusMisdirectedRequest},
		{[]string{"Host: evil.example:" + at.Port()}, http.StatusMisdirectedRequest},
		{[]string{"Host: localhost:" + at.Port()}, http.StatusCreated},
		{[]string{"Sec-Fetch-Site: same-origin", "Origin: " + w.url}, http.StatusCreated},
		{nil, http.StatusCreated},
	} {
		if a := w.do("POST", "/api/v1/jobs", job, c.headers...); a.status != c.want {
			t.Errorf("%q: %d %s, want %d", c.headers, a.status, a.body, c.want)
		}
	}
}

// TestPathsStayInside: no path leads to a file that is not a page.
func TestPathsStayInside(t *testing.T) {
	w := bare(t, nil)
	for _, path := range []string{"/../gateway.go", "/..%2fgateway.go", "/%2e%2e/%2e%2e/etc/passwd", "/vendor/../../dashboard.go", "//etc/passwd", "/vendor", "/files/index.html", "/api/v1/jobs/..%2f..%2fnodes", "/api/v1/jobs/%00", "/api/v1/jobs/a/../../nodes"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", path, token)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		b, _ := io.ReadAll(res.Body)
		c.Close()
		moved := res.StatusCode == http.StatusMovedPermanently || res.StatusCode == http.StatusTemporaryRedirect // to the clean path
		if strings.Contains(string(b), "root:") || strings.Contains(string(b), "package ") || (res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusBadRequest && !moved) {
			t.Errorf("%s: %d %.100s", path, res.StatusCode, b)
		}
	}
}

// TestSlowClientsAreDisconnected: each gets its time for the header and the body, and not more.
func TestSlowClientsAreDisconnected(t *testing.T) {
	w := bare(t, func(o *gateway.Options) {
		o.Patience = gateway.Patience{Header: 500 * time.Millisecond, Read: time.Second, Write: 5 * time.Second, Idle: 500 * time.Millisecond}
	})
	for name, begin := range map[string]string{
		"header": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
		"body":   "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{",
		"idle":   "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, begin)
		began := time.Now()
		if err := c.SetDeadline(began.Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: open after %s", name, time.Since(began))
		}
		c.Close()
	}
	s := w.stream("/api/v1/events") // is no slow client, though it lasts longer than the time to read
	w.eventually("the time to read has passed", func() bool { return w.get("/healthz", "X-Slow: no").status == http.StatusOK })
	time.AfterFunc(1500*time.Millisecond, func() { w.fact("a", 1) })
	if i := s.next(); i.kind != "fact" {
		t.Errorf("%+v", i)
	}
}

// TestHeadersAreBounded and unknown paths and methods say what there is.
func TestHeadersAreBounded(t *testing.T) {
	w := bare(t, nil)
	if a := w.get("/healthz", "X-Long: "+strings.Repeat("x", 80<<10)); a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d", a.status)
	}
	if a := w.get("/api/v2/jobs"); a.status != http.StatusNotFound || a.problem(t).Detail == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PUT", "/api/v1/jobs", ""); a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, POST" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	var p map[string]any
	if err := json.Unmarshal(w.get("/api/v1/jobs/"+strings.Repeat("x", 3000)).body, &p); err != nil || len(fmt.Sprint(p["detail"])) > 500 {
		t.Errorf("%v %v", p, err)
	}
}
