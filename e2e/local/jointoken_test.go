package local

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
)

// newcomer is a cluster with identities in which a machine has nothing of the cluster but what it
// is given here: its processes have no variable of it.
type newcomer struct {
	*cluster
	variables []string // of the cluster's own processes
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	c := guarded(t)
	c.services(1)
	return &newcomer{c, c.env}
}

// token makes one on the machine with the directory of identities.
func (n *newcomer) token(args ...string) string {
	n.t.Helper()
	n.env = n.variables
	out, errs, code := n.cli(append(append([]string{"auth"}, args...), "--token")...)
	if code != 0 || strings.Count(out, "\n") != 1 {
		n.t.Fatalf("auth %v exits %d with %q, want one line: %s", args, code, out, errs)
	}
	return out
}

// refused runs a command that the broker refuses, and returns what it says. It tries until its
// time-out, before which a busy machine may not have asked.
func (n *newcomer) refused(args ...string) (errs string, code int) {
	n.t.Helper()
	for limit := 5 * time.Second; limit < time.Minute; limit *= 2 {
		if _, errs, code = n.cli(append(args, "--timeout", limit.String())...); strings.Contains(errs, "refuses") {
			return errs, code
		}
	}
	n.t.Errorf("%v is not refused: exit %d: %s", args, code, errs)
	return errs, code
}

// away makes what is started from now on be on the machine of the newcomer.
func (n *newcomer) away(variables ...string) {
	n.env = append([]string{"REGROUP_SERVER=", "REGROUP_AUTH=", "REGROUP_NATS_SYSTEM_PASSWORD=", "REGROUP_AGENT_ADVERTISE=127.0.0.1", "REGROUP_AGENT_SLOTS=2"}, variables...)
}

// here makes it be in the cluster again.
func (n *newcomer) here() { n.env = n.variables }

// TestAMachineJoinsWithOneLine: an agent whose state folder is empty, and which is given a token
// and nothing else, runs a job; it comes back without the token; once it is revoked it is cut off
// and refused. The token is in no log, event or trace, and in no worker.
func TestAMachineJoinsWithOneLine(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	token := n.token("issue", "agent", "far-1")
	state := filepath.Join(n.dir, "far-state")
	n.away("REGROUP_STATE_DIR="+state, "REGROUP_AGENT_JOIN="+token)
	n.start("far-1", "agent")
	n.here()
	n.nodes(patience, "far-1")
	seen := filepath.Join(n.dir, "environment")
	job := n.submit("--workers", "2", "--", "sh", "-c", "env >> "+seen)
	n.ends(job, patience)
	variables, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := os.ReadFile(filepath.Join(n.dir, "auth", "users", "far-1.creds"))
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := bytes.Cut(creds, []byte("BEGIN USER NKEY SEED-----\n"))
	key, _, _ = bytes.Cut(key, []byte("\n"))
	if len(key) < 50 {
		t.Fatalf("the credentials have no key: %d bytes", len(key))
	}
	printed := map[string][]byte{"a worker's environment": variables}
	for _, name := range n.procs.Names() {
		printed["the log of "+name] = n.procs.Log(name, 0)
	}
	for _, args := range [][]string{{"events", string(job), "-o", "json"}, {"trace", string(job)}, {"node", "ls", "-o", "json"}, {"auth", "ls", "-o", "json"}} {
		out, errs, code := n.cli(args...)
		if code != 0 {
			t.Errorf("%v exits %d: %s", args, code, errs)
		}
		printed[strings.Join(args, " ")] = []byte(out + errs)
	}
	for where, text := range printed {
		if bytes.Contains(text, []byte(token[20:60])) || bytes.Contains(text, key) {
			t.Errorf("%s has the token or its key:\n%s", where, text)
		}
	}
	n.kill("far-1")
	n.away("REGROUP_STATE_DIR=" + state)
	n.start("far-again", "agent")
	n.here()
	job = n.submit("--workers", "2", "--", "true")
	n.ends(job, patience)

	if _, errs, code := n.cli("auth", "revoke", "far-1"); code != 0 {
		t.Fatalf("auth revoke exits %d: %s", code, errs)
	}
	eventually(t, patience, func() (bool, string) {
		state := n.node("far-1").State
		return state == events.NodeStateLost, "the node is lost, not " + string(state)
	})
	eventually(t, patience, func() (bool, string) {
		return bytes.Contains(n.procs.Log("far-again", 0), []byte("refuses")), "the agent says that it is refused"
	})
	n.kill("far-again")
	for _, v := range []string{"REGROUP_AGENT_JOIN=" + token, "REGROUP_AGENT_JOIN="} {
		n.away("REGROUP_STATE_DIR="+state, v)
		if errs, code := n.refused("agent"); code != 5 || !strings.Contains(errs, "revoked") {
			t.Errorf("%.20s: a revoked agent exits %d, want a refusal: %s", v, code, errs)
		}
	}
	token = n.token("issue", "agent", "far-1") // the name is free again
	n.away("REGROUP_STATE_DIR=" + state)
	file := filepath.Join(n.dir, "far.token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start("far-anew", "agent", "--join", "@"+file)
	n.here()
	n.nodes(patience, "far-1")
}

// TestATokenEnds: the broker ends the connection of an agent at the time that its token names, and
// the agent is refused, with what is to be done, before it connects again.
func TestATokenEnds(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	token := n.token("issue", "agent", "far-2", "--expires", "30s")
	out, _, _ := n.cli("auth", "ls")
	if !strings.Contains(out, "token") || !strings.Contains(out, "until ") {
		t.Errorf("the token or its end is not listed:\n%s", out)
	}
	state := filepath.Join(n.dir, "far-state")
	n.away("REGROUP_STATE_DIR="+state, "REGROUP_AGENT_JOIN="+token)
	n.start("far-2", "agent")
	n.here()
	n.nodes(patience, "far-2")
	eventually(t, patience, func() (bool, string) {
		state := n.node("far-2").State
		return state == events.NodeStateLost, "the node is lost, not " + string(state)
	})
	for _, v := range []string{"REGROUP_AGENT_JOIN=" + token, "REGROUP_AGENT_JOIN="} {
		n.away("REGROUP_STATE_DIR="+filepath.Join(n.dir, "elsewhere"), v)
		if v == "REGROUP_AGENT_JOIN=" {
			n.kill("far-2")
			n.away("REGROUP_STATE_DIR="+state, v)
		}
		if _, errs, code := n.cli("agent", "--timeout", "5s"); code != 2 || !strings.Contains(errs, "has expired at") || !strings.Contains(errs, "regroup auth issue agent far-2 --token") {
			t.Errorf("%.20s: an expired agent exits %d, want what is to be done: %s", v, code, errs)
		}
	}
	n.here()
	if out, _, _ := n.cli("auth", "ls"); !strings.Contains(out, "expired") {
		t.Errorf("the end is not listed:\n%s", out)
	}
}

// TestAPersonJoinsWithOneLine: a context of a token, and one that was saved where the directory of
// identities is, are all that commands need.
func TestAPersonJoinsWithOneLine(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	n.agent("node-a", 1)
	file := filepath.Join(n.dir, "ada.token")
	if err := os.WriteFile(file, []byte(n.token("issue", "client", "ada")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		name string
		add  []string
		away bool
	}{
		{"elsewhere", []string{"context", "add", "lab", "--join", "@" + file}, true},
		{"here", []string{"auth", "issue", "client", "bob", "--save-context", "lab"}, false},
	} {
		n.env = append(slices.Clone(n.variables), "XDG_CONFIG_HOME="+filepath.Join(n.dir, at.name))
		if at.away {
			n.away("XDG_CONFIG_HOME="+filepath.Join(n.dir, at.name), "REGROUP_STATE_DIR="+filepath.Join(n.dir, at.name))
		}
		if _, errs, code := n.cli(at.add...); code != 0 {
			t.Fatalf("%v exits %d: %s", at.add, code, errs)
		}
		n.away("XDG_CONFIG_HOME="+filepath.Join(n.dir, at.name), "REGROUP_STATE_DIR="+filepath.Join(n.dir, at.name))
		job, errs, code := n.cli("submit", "--context", "lab", "--", "true")
		if code != 0 {
			t.Fatalf("%s: submit exits %d: %s", at.name, code, errs)
		}
		job = strings.TrimSpace(job)
		if _, errs, code := n.cli("wait", job, "--context", "lab"); code != 0 {
			t.Errorf("%s: wait exits %d: %s", at.name, code, errs)
		}
		if out, errs, code := n.cli("ls", "--context", "lab", "-o", "name"); code != 0 || !strings.Contains(out, job) {
			t.Errorf("%s: ls exits %d with %q: %s", at.name, code, out, errs)
		}
	}
}
