package local

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/durable"
)

// TestAnAgentTakesANewToken while its workers run: the file of its --join is replaced, and the old
// key is revoked once the new one is used. Nothing ends and nothing starts, and no sample is lost.
// Services and the broker's own connections take the new keys of the directory meanwhile.
func TestAnAgentTakesANewToken(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	token := n.token("issue", "agent", "far-1")
	file, old := filepath.Join(n.dir, "far.token"), filepath.Join(n.dir, "old.token")
	put := func(path, text string) {
		t.Helper()
		if err := durable.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put(file, token)
	put(old, token)
	state := filepath.Join(n.dir, "far-state")
	n.away("REGROUP_STATE_DIR="+state, "REGROUP_AGENT_JOIN=@"+file)
	n.start("far-1", "agent")
	n.here()
	n.nodes(patience, "far-1")
	job := n.submit(append([]string{"--workers", "2"}, n.counts(500)...)...)
	before := n.until(job, patience, "it steps", steps)
	agent := n.node("far-1").Incarnation
	printed := func(process, text string, times int) {
		t.Helper()
		eventually(t, patience, func() (bool, string) {
			return bytes.Count(n.procs.Log(process, 0), []byte(text)) >= times, process + " says " + text
		})
	}
	put(file, n.token("rotate", "far-1", "--keep-old"))
	printed("far-1", "a new join token is used", 1)
	printed("far-1", "connecting anew with the new ones", 1)
	printed("far-1", "reconnected to NATS", 1)
	for _, args := range [][]string{
		{"auth", "revoke", "far-1", "--old"}, {"auth", "rotate", "registry", "--keep-old"}, {"auth", "rotate", "rendezvous", "--keep-old"},
	} {
		if _, errs, code := n.cli(args...); code != 0 {
			t.Fatalf("%v exits %d: %s", args, code, errs)
		}
	}
	printed("nats", "identities have changed", 1)
	n.away("REGROUP_STATE_DIR="+filepath.Join(n.dir, "elsewhere"), "REGROUP_AGENT_JOIN=@"+old)
	if errs, code := n.refused("agent"); code != 5 {
		t.Errorf("the old token exits %d, want a refusal: %s", code, errs)
	}
	n.here()
	for _, name := range []string{"registry-0", "rendezvous-0"} {
		printed(name, "connecting anew with the new ones", 1)
		if _, errs, code := n.cli("auth", "revoke", strings.TrimSuffix(name, "-0"), "--old"); code != 0 {
			t.Errorf("auth revoke exits %d: %s", code, errs)
		}
	}
	if now := n.job(job); now.State.Terminal() {
		t.Fatalf("the job has ended too early to show anything: %s", now.State)
	}
	s := n.ends(job, 2*time.Minute)
	after := n.job(job)
	if len(after.Generations) != 1 || after.Generations[0].Members[0].PID != before.Generations[0].Members[0].PID || len(s.Generations) != 1 {
		t.Errorf("it has regrouped: %+v", after.Generations)
	}
	if v := n.node("far-1"); v.State != events.NodeStateReady || v.Incarnation != agent {
		t.Errorf("the node is %s, by the agent %s, want that of before, %s", v.State, v.Incarnation, agent)
	}
}
