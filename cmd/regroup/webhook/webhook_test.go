package webhook

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/regroup-io/regroup/client"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/memory"
	"github.com/regroup-io/regroup/internal/exitcode"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/services/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef-test"

// terminal runs commands against one gateway.
type terminal struct {
	t   *testing.T
	url string
	web *http.Client
}

func (x terminal) run(args ...string) (out, errs string, err error) {
	x.t.Helper()
	var o, e bytes.Buffer
	env := command.Env{Out: &o, Err: &e, Width: 200, Getenv: func(string) string { return "" }, Now: time.Now}
	root := &cobra.Command{Use: "regroup", SilenceErrors: true, SilenceUsage: true}
	command.GlobalFlags(root.PersistentFlags())
	root.AddCommand(Command(env, func(url string) (*client.Client, error) {
		return client.New(client.Options{URL: url, Token: token, HTTP: x.web, Patience: -1})
	}, x.url))
	root.SetArgs(append([]string{"webhook"}, args...))
	err = root.ExecuteContext(x.t.Context())
	return o.String(), e.String(), err
}

func start(t *testing.T) terminal {
	t.Helper()
	g, err := gateway.New(gateway.Options{
		Ports: memory.New().Ports(),
		Token: token, Version: "test", Webhooks: filepath.Join(t.TempDir(), "webhooks.json"), WebhooksPrivate: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return g.Serve(ctx, l) })
	x := terminal{t, "http://" + l.Addr().String(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(func() {
		cancel()
		if err := running.Wait(); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	limit, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	if err := wait.Until(limit, 5*time.Millisecond, func() (bool, error) {
		res, err := x.web.Get(x.url + "/readyz")
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	}); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestAWebhookIsShownWithItsReason: one that its target does not agree to is refused or listed, and
// taken once it does.
func TestAWebhookIsShownWithItsReason(t *testing.T) {
	x := start(t)
	var agrees atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if agrees.Load() {
			w.Header().Set("WebHook-Allowed-Origin", "*")
			w.Header().Set("WebHook-Allowed-Rate", "600")
		}
		if q.Method == http.MethodOptions && !agrees.Load() {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer target.Close()
	const why = "405 Method Not Allowed and without WebHook-Allowed-Origin"
	if _, _, err := x.run("add", target.URL, "--handshake", "required"); errcode.Of(err) != errcode.Unavailable || !strings.Contains(err.Error(), why) {
		t.Errorf("it was made, or the reason is missing: %v", err)
	}
	secret, printed, err := x.run("add", target.URL, "--type", "incident.*")
	if err != nil || !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("%q %q %v", secret, printed, err)
	}
	id, _, err := x.run("ls", "-o", "name")
	id = strings.TrimSpace(id)
	if err != nil || !strings.Contains(printed, id) {
		t.Fatalf("%q %q %v", id, printed, err)
	}
	shows := func(want ...string) {
		t.Helper()
		out, _, err := x.run("ls")
		for _, w := range want {
			if err != nil || !strings.Contains(out, w) {
				t.Errorf("it lacks %q: %v\n%s", w, err, out)
			}
		}
	}
	shows("incident.*", "optional", "not asked")
	if _, printed, err := x.run("test", id); err != nil || printed != "it was taken\n" {
		t.Errorf("%q %v", printed, err)
	}
	shows("not agreed", why)
	agrees.Store(true)
	if _, _, err := x.run("test", id); err != nil {
		t.Error(err)
	}
	shows("agreed, 600/min")
	if _, printed, err := x.run("replay", id); err != nil || printed != "all that are still kept were taken\n" {
		t.Errorf("%q %v", printed, err)
	}
	if _, _, err := x.run("add", target.URL, "--handshake", "maybe", "--rate", "-1"); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "handshake") || !strings.Contains(err.Error(), "rate") {
		t.Errorf("%v", err)
	}
	if _, _, err := x.run("add", target.URL+"/services/T0/B0", "--form", "slack"); err != nil {
		t.Error(err)
	}
	shows(target.URL+"/…  slack", "cloudevent")
	if out, _, err := x.run("ls", "-o", "json"); err != nil || strings.Contains(out, "B0") {
		t.Errorf("the secret part of its URL is shown: %v %s", err, out)
	}
	if _, _, err := x.run("add", target.URL, "--form", "irc"); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "form") {
		t.Errorf("%v", err)
	}
	_, _, err = x.run("add", target.URL, "--type", "job.faild", "--type", "alert.*")
	if exitcode.Of(err) != exitcode.Usage || !strings.Contains(err.Error(), `did you mean "job.failed"?`) || !strings.Contains(err.Error(), "types[1]") {
		t.Errorf("types of no fact: %v", err)
	}
	if _, _, err := x.run("rm", id); err != nil {
		t.Error(err)
	}
	if _, _, err := x.run("rm", id); errcode.Of(err) != errcode.NotFound {
		t.Errorf("%v", err)
	}
}
