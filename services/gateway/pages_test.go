package gateway_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"testing"
)

// TestTimelineAsAPicture: it is chosen by the parameter, else by the header, and is JSON for those
// who say nothing.
func TestTimelineAsAPicture(t *testing.T) {
	w := start(t)
	id := string(w.submit(job).Job)
	path := "/api/v1/jobs/" + id + "/timeline"
	w.eventually("the job is there", func() bool { return w.get(path).status == http.StatusOK })
	for _, c := range []struct{ query, accept, want string }{
		{"", "", "application/json"},
		{"", "*/*", "application/json"},
		{"", "application/json, image/svg+xml", "application/json"},
		{"", "text/html", "application/json"},
		{"", "image/svg+xml", "image/svg+xml"},
		{"", "image/avif,image/svg+xml,image/*,*/*;q=0.8", "image/svg+xml"},
		{"?format=svg", "application/json", "image/svg+xml"},
		{"?format=json", "image/svg+xml", "application/json"},
	} {
		var headers []string
		if c.accept != "" {
			headers = append(headers, "Accept: "+c.accept)
		}
		a := w.get(path+c.query, headers...)
		if got := a.header.Get("Content-Type"); a.status != http.StatusOK || got != c.want {
			t.Errorf("%s, %q: %d %s, want %s", c.query, c.accept, a.status, got, c.want)
		}
		if c.want == "image/svg+xml" {
			drawn(t, a.body, "timeline of "+id)
			if got := a.header.Get("Content-Security-Policy"); got != "default-src 'none'; style-src 'unsafe-inline'; sandbox" {
				t.Errorf("a browser may do more with it: %q", got)
			}
		}
	}
	if p := w.get(path + "?format=png").problem(t); p.Status != http.StatusBadRequest || len(p.Errors) != 1 || p.Errors[0].Path != "format" {
		t.Errorf("%+v", p)
	}
	if p := w.get("/api/v1/jobs/none/timeline?format=svg").problem(t); p.Status != http.StatusNotFound {
		t.Errorf("%+v", p)
	}
}

// drawn checks that a picture is well formed and has a text, and no script.
func drawn(t *testing.T, svg []byte, text string) {
	t.Helper()
	if !bytes.Contains(svg, []byte(text)) || bytes.Contains(svg, []byte("<script")) {
		t.Errorf("%s", svg)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v: %s", err, svg)
		}
	}
}
