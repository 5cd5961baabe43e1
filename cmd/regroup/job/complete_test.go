package job

import (
	"strings"
	"testing"
)

// TestShellsCompleteJobs checks that running jobs come first, and that a second argument is not
// completed.
func TestShellsCompleteJobs(t *testing.T) {
	w := world(t)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"gpt-0c22\twaiting mnist-7f3a\trunning bert-0c21\tfailed :4", []string{"__complete", "status", ""}},
		{"gpt-0c22\twaiting mnist-7f3a\trunning :4", []string{"__complete", "stop", ""}},
		{"bert-0c21\tfailed :4", []string{"__complete", "rm", ""}},
		{"0\tnode-a/0 :4", []string{"__complete", "logs", "mnist-7f3a", "--rank", ""}},
		{"node-a node-c :4", []string{"__complete", "logs", "mnist", "--node", ""}},
		{":4", []string{"__complete", "logs", "--node", ""}}, // the last job has no worker
		{"2\tworker-failed, 1 worker 1\tstart, 2 workers :4", []string{"__complete", "logs", "mnist", "--gen", ""}},
		{":4", []string{"__complete", "logs", "gpt", "--gen", ""}},
		{":1", []string{"__complete", "logs", "absent", "--rank", ""}},
		{":4", []string{"__complete", "scale", "mnist-7f3a", ""}},
	} {
		if got := strings.Join(strings.Split(strings.TrimSpace(run(t, w, c.args...).Out), "\n"), " "); got != c.want {
			t.Errorf("%v completes %q, want %q", c.args, got, c.want)
		}
	}
}
