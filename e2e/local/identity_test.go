package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/wait"
	"github.com/regroup-io/regroup/jetstream"
)

// identities is a cluster without a process, with a directory of identities for all that come.
func identities(t *testing.T) *cluster {
	t.Helper()
	c := empty(t)
	c.env = []string{"REGROUP_AUTH=" + filepath.Join(c.dir, "auth"), "REGROUP_NATS_SYSTEM_PASSWORD="}
	for _, args := range [][]string{{"init"}, {"issue", "client"}, {"issue", "viewer"}, {"issue", "agent", "node-a"}, {"issue", "agent", "node-b"}} {
		if _, errs, code := c.cli(append([]string{"auth"}, args...)...); code != 0 {
			t.Fatalf("auth %v exits %d: %s", args, code, errs)
		}
	}
	c.url = "nats://" + freeAddress(t)
	return c
}

// watches connects the test itself, as a viewer.
func (c *cluster) watches() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	conn, err := jetstream.Connect(ctx, jetstream.ConnectOptions{
		URL: c.url, Name: "test", Credentials: filepath.Join(c.dir, "auth", "users", "viewer.creds"), RootCA: filepath.Join(c.dir, "auth", "tls", "ca.pem"),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	c.ports = conn.Ports()
}

// guarded is a cluster whose broker admits only the users of a directory of identities. The test
// itself is a viewer.
func guarded(t *testing.T) *cluster {
	t.Helper()
	c := identities(t)
	c.start("nats", "serve", "nats", "--listen", strings.TrimPrefix(c.url, "nats://"), "--state-dir", filepath.Join(c.dir, "nats"))
	c.watches()
	return c
}

// TestEveryProcessHasItsOwnIdentity runs a job where each service, each agent and the client may do
// only what its role may: a worker is killed, then an agent, and nothing is refused to any of them.
func TestEveryProcessHasItsOwnIdentity(t *testing.T) {
	t.Parallel()
	c := guarded(t)
	c.services(1)
	c.agent("node-a", 2)
	c.agent("node-b", 2)
	const token = "a token of the gateway"
	web := freeAddress(t)
	c.env = append(c.env, "REGROUP_GATEWAY_TOKEN="+token)
	c.start("gateway", "serve", "gateway", "--server", c.url, "--listen", web, "--state-dir", filepath.Join(c.dir, "gateway"))
	job := c.submit(append([]string{"--workers", "2:4"}, c.counts(600)...)...)
	v := c.until(job, patience, "its first generation steps", steps)
	throughGateway(t, "http://"+web, token, job)
	killPID(t, v.Generations[0].Members[0].PID)
	v = c.until(job, patience, "it has regrouped", func(now events.JobView) bool {
		n := len(now.Generations)
		return now.Generation > v.Generation && now.Generations[n-1].Ready
	})
	c.kill("node-b")
	c.until(job, patience, "it has regrouped again", func(now events.JobView) bool { return now.Generation > v.Generation })
	c.restart("node-b")
	survivorsKeepTheirProcess(t, c.ends(job, patience))
	for _, args := range [][]string{
		{"ls"},
		{"status", string(job)},
		{"logs", string(job)},
		{"events", string(job)},
		{"timeline", string(job)},
		{"trace", string(job)},
		{"explain", string(job)},
		{"node", "ls"},
		{"node", "drain", "node-b"},
		{"rm", string(job)},
	} {
		if _, errs, code := c.cli(args...); code != 0 || strings.Contains(errs, "permission") {
			t.Errorf("%v exits %d: %s", args, code, errs)
		}
	}
	for _, name := range c.procs.Names() {
		for line := range bytes.Lines(c.procs.Log(name, 0)) {
			if text := bytes.ToLower(line); bytes.Contains(text, []byte("violation")) || bytes.Contains(text, []byte("want of permission")) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if b := c.procs.Log("discovery-0", 0); bytes.Contains(b, []byte("system account")) {
		t.Errorf("discovery does not hear of closed connections:\n%s", b)
	}
	c.env = append(c.env, "REGROUP_CREDS="+filepath.Join(c.dir, "auth", "users", "viewer.creds"), "REGROUP_TLSCA="+filepath.Join(c.dir, "auth", "tls", "ca.pem"))
	if _, errs, code := c.cli("submit", "--timeout", "1m", "--", "true"); code != 2 || !strings.Contains(errs, "may not publish") {
		t.Errorf("a viewer's job: exit %d, want a refusal:\n%s", code, errs)
	}
}

// throughGateway reads and changes through a gateway that has its own role.
func throughGateway(t *testing.T, url, token string, job ident.JobID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return res.StatusCode, string(text)
	}
	if err := wait.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		code, _ := ask("GET", "/readyz", "")
		return code == http.StatusOK, nil
	}); err != nil {
		t.Fatalf("the gateway is not ready: %v", err)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/api/v1/jobs/" + string(job), ""},
		{"GET", "/api/v1/jobs/" + string(job) + "/logs", ""},
		{"GET", "/api/v1/jobs/" + string(job) + "/events?follow=0", ""},
		{"GET", "/api/v1/jobs/" + string(job) + "/metrics", ""},
		{"GET", "/api/v1/system", ""},
		{"GET", "/metrics", ""},
		{"PATCH", "/api/v1/jobs/" + string(job), `{"workers": {"min": 2, "max": 4}}`},
	} {
		if code, text := ask(c.method, c.path, c.body); code != http.StatusOK {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, text)
		}
	}
	if code, text := ask("POST", "/api/v1/jobs", `{"name": "http", "command": ["true"], "workers": {"min": 1, "max": 1}}`); code != http.StatusCreated {
		t.Errorf("submit: %d %s", code, text)
	}
}

// TestAParticipantBringsItsJob: an agent that nobody schedules creates its job, with the one
// identity of its node; one that is only an agent may not.
func TestAParticipantBringsItsJob(t *testing.T) {
	t.Parallel()
	c := guarded(t)
	c.services(1)
	if _, errs, code := c.cli("auth", "issue", "participant", "node-c"); code != 0 {
		t.Fatalf("auth issue exits %d: %s", code, errs)
	}
	join := func(node string) (string, int) {
		_, errs, code := c.cli("agent", "--join-job", "it-"+node, "--node", node, "--advertise", "127.0.0.1", "--state-dir", filepath.Join(c.dir, node),
			"--nnodes", "1", "--nproc-per-node", "2", "--", "sh", "-c", "exit 0")
		return errs, code
	}
	if errs, code := join("node-c"); code != 0 || strings.Contains(errs, "permission") {
		t.Errorf("a participant exits %d:\n%s", code, errs)
	}
	if errs, code := join("node-a"); code != 2 || !strings.Contains(errs, "may not publish to regroup.cmd.job.submit") {
		t.Errorf("an agent that brings a job: exit %d, want a refusal:\n%s", code, errs)
	}
	if _, errs, code := c.cli("agent", "--node", "node-b", "--creds", filepath.Join(c.dir, "auth", "users", "node-a.creds")); code != 2 || !strings.Contains(errs, "--node") {
		t.Errorf("an agent of another node: exit %d, want a refusal:\n%s", code, errs)
	}
	_, errs, code := c.cli("torchrun", "--nnodes", "1", "--nproc-per-node", "1", "--no-python", "--rdzv-id", "ours", "--local-addr", "127.0.0.1", "sh", "-c", "exit 0")
	if code == 0 || !strings.Contains(errs, "has no user") {
		t.Errorf("torchrun on a node without a user: exit %d:\n%s", code, errs)
	}
}

// TestOthersAreRefusedByARun: its server admits those who can read the state folder, and nobody
// else at the port.
func TestOthersAreRefusedByARun(t *testing.T) {
	for _, kind := range []string{"run", "up"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			args, ready := append([]string{"run", "--name", "job"}, until(filepath.Join(dir, "end"))...), "ready"
			if kind == "up" {
				args, ready = []string{"up", "--slots", "1"}, "regroup is up"
			}
			p := begin(t, dir, args...)
			p.prints(ready)
			var at struct{ URL, Secret string }
			file := filepath.Join(dir, "state", "server.json")
			eventually(t, patience, func() (bool, string) {
				b, err := os.ReadFile(file)
				return err == nil && json.Unmarshal(b, &at) == nil && at.URL != "", "the server is recorded"
			})
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v (%v), want 0600", file, info.Mode(), err)
			}
			for _, o := range [][]nats.Option{nil, {nats.UserInfo("regroup", "guessed")}, {nats.Token("guessed")}} {
				nc, err := nats.Connect(at.URL, o...)
				if err == nil {
					nc.Close()
					t.Fatal("a stranger is admitted")
				}
				if !errors.Is(err, nats.ErrAuthorization) {
					t.Errorf("a stranger is refused for another reason: %v", err)
				}
			}
			if _, errs, code := runLocal(t, dir, atOnce, "ls"); code != 0 {
				t.Errorf("the same user's ls exits %d: %s", code, errs)
			}
			touch(t, filepath.Join(dir, "end"))
			if kind == "run" && p.ends(patience) != 0 {
				t.Error("the run has not succeeded")
			}
		})
	}
}

// TestUpAdmitsIdentities: with a directory of identities `regroup up` admits its users, and
// commands of the same user here need no setting.
func TestUpAdmitsIdentities(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	auth := filepath.Join(dir, "state", "auth")
	if _, errs, code := runLocal(t, dir, atOnce, "auth", "init"); code != 0 {
		t.Fatalf("auth init exits %d: %s", code, errs)
	}
	address := freeAddress(t)
	if _, errs, code := runLocal(t, dir, atOnce, "health"); code != 2 || !strings.Contains(errs, "no regroup up of this user runs here") {
		t.Errorf("health of none exits %d: %s", code, errs)
	}
	up := begin(t, dir, "up", "--slots", "2", "--auth", auth, "--listen", address)
	up.prints("regroup is up")
	eventually(t, patience, func() (bool, string) { // on a busy machine a service may be late to answer
		_, errs, code := runLocal(t, dir, patience, "health", "--timeout", "1m")
		return code == 0, fmt.Sprintf("health exits %d: %s", code, errs)
	})
	if _, errs, code := runLocal(t, dir, patience, "run", "--workers", "2", "--", "sh", "-c", "true"); code != 0 {
		t.Errorf("run exits %d: %s", code, errs)
	}
	if _, errs, code := runLocal(t, dir, atOnce, "auth", "issue", "client", "ada", "--out", filepath.Join(dir, "ada.creds")); code != 0 {
		t.Errorf("auth issue exits %d: %s", code, errs)
	}
	ada := []string{"--server", "nats://" + address, "--creds", filepath.Join(dir, "ada.creds"), "--tlsca", filepath.Join(auth, "tls", "ca.pem")}
	if out, errs, code := runLocal(t, dir, patience, append([]string{"ls"}, ada...)...); code != 0 || !strings.Contains(out, "succeeded") {
		t.Errorf("ls of a client exits %d: %s%s", code, out, errs)
	}
	if _, errs, code := runLocal(t, dir, atOnce, "auth", "revoke", "ada"); code != 0 {
		t.Errorf("auth revoke exits %d: %s", code, errs)
	}
	eventually(t, patience, func() (bool, string) {
		_, errs, code := runLocal(t, dir, patience, append([]string{"ls", "--timeout", "5s"}, ada...)...)
		return code == 5 && strings.Contains(strings.ToLower(errs), "auth"), "a revoked client is refused: " + errs
	})
	up.signal(syscall.SIGTERM)
	up.ends(30 * time.Second)
	if out, errs, code := runLocal(t, dir, patience, "ls"); code != 0 || !strings.Contains(out, "succeeded") {
		t.Errorf("ls of the ended server's store exits %d: %s%s", code, out, errs)
	}
}

// TestTorchrunSaysThatItsPortIsOpen where several nodes share no secret.
func TestTorchrunSaysThatItsPortIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, secret := range []string{"", "shared"} {
		cmd := exec.CommandContext(t.Context(), bin("regroup"), "torchrun", "--nnodes", "1:2", "--nproc-per-node", "1", "--no-python", "--rdzv-backend", "c10d",
			"--rdzv-endpoint", freeAddress(t), "--rdzv-conf", "is_host=true,last_call_timeout=1", "sh", "-c", "exit 0")
		cmd.Env = append(os.Environ(), "REGROUP_STATE_DIR="+dir, "REGROUP_AGENT_ADVERTISE=127.0.0.1", "REGROUP_SECRET="+secret)
		out, err := cmd.CombinedOutput()
		if printed := bytes.Contains(out, []byte("admits any client")); err != nil || printed != (secret == "") {
			t.Errorf("with the secret %q: %v, it says that its port is open: %v\n%s", secret, err, printed, out)
		}
	}
}

// TestTorchrunWithASecret runs two nodes of a torchrun that share one; a stranger is refused.
func TestTorchrunWithASecret(t *testing.T) {
	dir := t.TempDir()
	address := freeAddress(t)
	node := func(n string, env ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), bin("regroup"), "torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--no-python", "--rdzv-backend", "c10d",
			"--rdzv-endpoint", address, "--rdzv-conf", "is_host="+map[string]string{"a": "true", "b": "false"}[n], "--rdzv-id", "it", "sh", "-c", "until [ -e "+filepath.Join(dir, "end")+" ]; do sleep 0.1; done")
		cmd.Env = append(append(os.Environ(), "REGROUP_STATE_DIR="+filepath.Join(dir, n), "REGROUP_AGENT_NODE=node-"+n, "REGROUP_AGENT_ADVERTISE=127.0.0.1"), env...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("node %s:\n%s", n, out.String())
			}
		})
		return cmd
	}
	a, b := node("a", "REGROUP_SECRET=shared"), node("b", "REGROUP_SECRET=shared")
	eventually(t, patience, func() (bool, string) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil, "the server listens"
	})
	if nc, err := nats.Connect("nats://" + address); !errors.Is(err, nats.ErrAuthorization) {
		if err == nil {
			nc.Close()
		}
		t.Errorf("a stranger: %v, want a refusal", err)
	}
	touch(t, filepath.Join(dir, "end"))
	for _, cmd := range []*exec.Cmd{a, b} {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", cmd.Args, err)
		}
	}
}
