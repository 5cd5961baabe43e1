package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/output"
)

func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSecretsAreInTheEnvironmentAlone: the worker has them, and its output, its last lines and its
// exception do not.
func TestSecretsAreInTheEnvironmentAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Environ: []string{"PATH=" + os.Getenv("PATH"), "HF_TOKEN=hf_very_secret", "OTHER=seen"}, AllowSecrets: []string{"HF_TOKEN"}})
	script := `[ "$KEY" = s3cr3t-of-a-file ] && [ "$TOKEN" = hf_very_secret ] && [ -z "$HF_TOKEN" ] && echo the environment is right
echo "key $KEY and token $TOKEN" "$OTHER"; tr '\0' ' ' < /proc/self/cmdline
printf 'Traceback (most recent call last):\n  File "/a/train.py", line 3, in main\nValueError: no %s\n' "$TOKEN" >&2; exit 1`
	r.startWith(worker.StartProcess{
		Worker: r.id, Command: []string{"sh", "-c", script}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
		Secrets: map[string]string{"KEY": "file:" + secretFile(t, "s3cr3t-of-a-file\n"), "TOKEN": "env:HF_TOKEN"},
	})
	next[worker.ProcessStarted](r)
	x := next[worker.ProcessExited](r)
	if got := r.output(); !slices.Contains(got, "the environment is right") || !slices.Contains(got, "key **** and token **** seen") {
		t.Errorf("output %q", got)
	}
	if x.Exception == nil || x.Exception.Message != "no ****" {
		t.Errorf("exception %+v", x.Exception)
	}
	for _, line := range append(r.output(), x.Lines...) {
		if strings.Contains(line, "s3cr3t") || strings.Contains(line, "hf_very") {
			t.Errorf("a secret is shown: %q", line)
		}
	}
}

// TestTheErrorFileIsConcealedUntilTheExitIsReported: the agent reads it then.
func TestTheErrorFileIsConcealedUntilTheExitIsReported(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	got := make(chan string, 1)
	r.d.Start(worker.StartProcess{
		Worker: r.id, Command: []string{"true"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)},
		Secrets: map[string]string{"KEY": "file:" + secretFile(t, "s3cr3t")},
	}, func(in worker.Input) {
		if _, ok := in.(worker.ProcessExited); ok {
			got <- r.d.Conceal(r.id, "it is s3cr3t")
		}
	}, func(string, []output.Line) {})
	if text := <-got; text != "it is ****" {
		t.Errorf("got %q", text)
	}
}

// TestWithoutItsSecretAWorkerDoesNotStart: the error names the secret and what to do.
func TestWithoutItsSecretAWorkerDoesNotStart(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"env:HOME": "--allow-secret HOME", "env:UNSET": "has no variable UNSET", "file:/nonexistent/a": "no such file", "file:" + fifo: "no regular file",
		"file:" + t.TempDir(): "no regular file", "file:" + secretFile(t, ""): "at least 4", "file:" + secretFile(t, "a\x00bcdef"): "NUL",
		"file:" + secretFile(t, strings.Repeat("x", limits.Secret.Max+1)): "limit secret", "vault:x": "does not know",
	} {
		r := newRig(t, Options{AllowSecrets: []string{"UNSET"}})
		r.startWith(worker.StartProcess{
			Worker: r.id, Command: []string{"true"}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}, Secrets: map[string]string{"KEY": source},
		})
		if x := next[worker.ProcessFailedToStart](r); x.ExitCode != 126 || !strings.HasPrefix(x.Detail, "secrets.KEY: ") || !strings.Contains(x.Detail, want) {
			t.Errorf("%s: %+v, want %q", source, x, want)
		}
	}
}
