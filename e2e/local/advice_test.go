package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTheAdviceForSeveralNodesWorks: what `regroup run --nnodes` says instead is run word by word,
// a server and two agents. An agent without the secret is refused, ends at once, and says what it
// lacks.
func TestTheAdviceForSeveralNodesWorks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, errs, code := runLocal(t, dir, patience, "run", "--nnodes", "2", "--nproc-per-node", "1", "--name", "advised", "--", "sh", "-c", "echo it is $RANK of $WORLD_SIZE")
	head, rest, _ := strings.Cut(strings.TrimSpace(errs), "\n")
	lines := strings.Split(rest, "\n")
	if code != 2 || !strings.Contains(head, "SECRET is any word") || len(lines) != 2 {
		t.Fatalf("it exits %d with:\n%s", code, errs)
	}
	at := freeAddress(t)
	line := func(text, node string) *started {
		text = strings.NewReplacer("0.0.0.0:4222", at, "HOST:4222", at).Replace(text)
		return beginCommand(t, dir, exec.Command("sh", "-c", "exec env "+text), "PATH="+binaries+":"+os.Getenv("PATH"),
			"REGROUP_STATE_DIR="+filepath.Join(dir, node), "REGROUP_AGENT_NODE="+node, "REGROUP_AGENT_ADVERTISE=127.0.0.1")
	}
	up := line(lines[0], "server")
	up.prints("regroup is up")
	_, without, found := strings.Cut(lines[1], "REGROUP_SECRET=SECRET ")
	if !found {
		t.Fatalf("no secret: %s", lines[1])
	}
	stranger := line(without, "stranger")
	if code := stranger.ends(patience); code != 5 || !strings.Contains(stranger.printed(), "none are given: set REGROUP_SECRET") {
		t.Errorf("without the secret an agent exits %d: %s", code, stranger.printed())
	}
	// A broker may close the connection before the refusal is read, and then it is asked again.
	if n := strings.Count(up.printed(), "authentication error"); n < 1 || n > 5 {
		t.Errorf("it was refused %d times, want once:\n%s", n, up.printed())
	}
	agents := []*started{line(lines[1], "node-a"), line(lines[1], "node-b")}
	for _, a := range agents {
		if code := a.ends(patience); code != 0 || !strings.Contains(a.printed(), "of 2\n") {
			t.Errorf("an agent exits %d", code)
		}
	}
}

// TestAnAgentFindsTheServerOfThisMachine, as other commands do, and ends when that is started again
// elsewhere.
func TestAnAgentFindsTheServerOfThisMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := begin(t, dir, "up", "--no-agent")
	up.prints("regroup is up")
	out, errs, code := runLocal(t, dir, patience, "agent", "--join-job", "found", "--advertise", "127.0.0.1", "--", "echo", "it runs")
	if code != 0 || !strings.Contains(out, "it runs") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	scheduled := begin(t, dir, "agent", "--advertise", "127.0.0.1")
	if out, errs, code := runLocal(t, dir, patience, "run", "--", "echo", "it too"); code != 0 || !strings.Contains(out, "it too") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	up.signal(syscall.SIGKILL)
	up.ends(patience)
	begin(t, dir, "up", "--no-agent").prints("regroup is up")
	if code := scheduled.ends(patience); code != 5 || !strings.Contains(scheduled.printed(), "regroup up was started again") {
		t.Errorf("the agent exits %d", code)
	}
}
