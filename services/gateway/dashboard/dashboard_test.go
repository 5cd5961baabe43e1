package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVendoredFilesAreThoseOfTheLock checks each library against its hash, and that each has its
// licence beside it.
func TestVendoredFilesAreThoseOfTheLock(t *testing.T) {
	lock, err := os.ReadFile("vendor.lock")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := files.ReadDir("files/vendor")
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, e := range entries {
		left[e.Name()] = true
	}
	code, licences := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(lock)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 6 {
			t.Fatalf("%q has %d words, want 6", line, len(f))
		}
		text, err := files.ReadFile("files/vendor/" + f[0])
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != f[5] {
			t.Errorf("%s is not the file %s of %s %s", f[0], f[4], f[1], f[2])
		}
		if !slices.Contains([]string{"MIT", "Apache-2.0"}, f[3]) {
			t.Errorf("%s has the licence %s, which nobody has looked at", f[1], f[3])
		}
		if f[4] == "LICENSE" {
			licences[f[1]] = true
		} else {
			code[f[1]] = true
		}
		delete(left, f[0])
	}
	for name := range left {
		t.Errorf("vendor.lock has no %s", name)
	}
	for name := range code {
		if !licences[name] {
			t.Errorf("the licence of %s is missing", name)
		}
	}
}

// TestEveryImportIsServed follows the imports of the modules as a browser does.
func TestEveryImportIsServed(t *testing.T) {
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	get := func(name string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, name, nil))
		return w
	}
	index := get("/").Body.String()
	named := map[string]string{}
	for _, m := range regexp.MustCompile(`"([^"]+)":"(/vendor/[^"]+)"`).FindAllStringSubmatch(index, -1) {
		named[m[1]] = m[2]
	}
	seen := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		w := get(name)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") {
			t.Errorf("%s: %d %s", name, w.Code, w.Header().Get("Content-Type"))
		}
		for _, m := range regexp.MustCompile(`(?:from|import) *"([^"\s]+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			switch at, known := named[m[1]]; {
			case known:
				follow(at)
			case strings.HasPrefix(m[1], "./"):
				follow(path.Join(path.Dir(name), m[1]))
			default:
				t.Errorf("%s imports %q, which the map does not have", name, m[1])
			}
		}
	}
	follow("/app.js")
	if len(seen) < 15 {
		t.Errorf("only %d modules were found", len(seen))
	}
	for word, at := range named {
		if !seen[at] {
			t.Errorf("nothing imports %s", word)
		}
	}
}

// TestThePolicyAllowsWhatThePageHas: the only script in the page is the one whose hash is allowed,
// and nothing comes from elsewhere.
func TestThePolicyAllowsWhatThePageHas(t *testing.T) {
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	policy, page := w.Header().Get("Content-Security-Policy"), w.Body.String()
	for _, want := range []string{"default-src 'none'", "script-src 'self' 'sha256-", "style-src 'self';", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %q: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is not strict: %s", policy)
	}
	if n := strings.Count(page, "<script"); n != 2 || strings.Contains(page, "://") || strings.Contains(page, "style=") || regexp.MustCompile(`\son\w+=`).MatchString(page) {
		t.Errorf("the page has %d scripts, or something inline, or of another site", n)
	}
	again := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("If-None-Match", w.Header().Get("ETag"))
	if h.ServeHTTP(again, req); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("a page that has not changed is %d", again.Code)
	}
	for _, name := range []string{"/../dashboard.go", "/files/index.html", "/vendor/", "/nothing"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.URL.Path = name
		if h.ServeHTTP(w, req); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// TestPagesAreFoundWithoutTheirHash: who leaves the # of an address out gets to the page, with its
// tab and its filters.
func TestPagesAreFoundWithoutTheirHash(t *testing.T) {
	h, err := Handler()
	if err != nil {
		t.Fatal(err)
	}
	get := func(target string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w.Code, w.Header().Get("Location")
	}
	for target, want := range map[string]string{
		"/jobs":                          "/#/jobs",
		"/jobs/":                         "/#/jobs/",
		"/jobs/mnist-7f3a":               "/#/jobs/mnist-7f3a",
		"/jobs/mnist-7f3a/logs?rank=0,3": "/#/jobs/mnist-7f3a/logs?rank=0,3",
		"/jobs/a%2Fb%23?q=1%26":          "/#/jobs/a%2Fb%23?q=1%26",
	} {
		if code, to := get(target); code != http.StatusFound || to != want {
			t.Errorf("%s: %d %s, want %s", target, code, to, want)
		}
	}
	for _, target := range []string{"/job", "/jobs.js/x", "/app.js/jobs", "/app", "/login"} {
		if code, to := get(target); code == http.StatusFound || code == http.StatusOK {
			t.Errorf("%s: %d %s", target, code, to)
		}
	}
	app, err := files.ReadFile("files/app.js")
	if err != nil {
		t.Fatal(err)
	}
	known := regexp.MustCompile(`case "(\w+)": return`).FindAllSubmatch(app, -1)
	if len(known) < 5 {
		t.Errorf("app.js has only the pages %q", known)
	}
	for _, m := range known {
		if code, to := get("/" + string(m[1])); code != http.StatusFound || to != "/#/"+string(m[1]) {
			t.Errorf("%s is a page of app.js, and /%[1]s is %d %s", m[1], code, to)
		}
	}
}
