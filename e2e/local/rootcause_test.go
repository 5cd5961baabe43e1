package local

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestTheRootCauseIsReportedFirst lets rank 1 raise an exception and end slowly; rank 0 loses it,
// fails because of that, and its exit arrives first. An exception counts from when the agent has
// read it, so rank 0 waits for that. The output and the summary show rank 1's
// exception, its position in the user's code and its cause.
func TestTheRootCauseIsReportedFirst(t *testing.T) {
	dir := t.TempDir()
	const script = `
trace() { printf 'Traceback (most recent call last):\n  File "%s/train.py", line %s, in %s\n    x\n  File "/usr/lib/python3/dist-packages/torch/x.py", line 1, in x\n    y\n%s\n' "$PWD" "$1" "$2" "$3" >&2; }
if [ $RANK = 1 ]; then
	trace 3 read "KeyError: 'shard-1'"
	printf '\nThe above exception was the direct cause of the following exception:\n\n' >&2
	trace 7 load "ValueError: shard 1 is truncated"
	python3 -c 'import fcntl, struct, termios, time
while struct.unpack("i", fcntl.ioctl(2, termios.FIONREAD, bytes(4)))[0]: time.sleep(0.001)' # until the agent has read it
	touch raised
	exec sleep 600
fi
while [ ! -e raised ]; do sleep 0.01; done
trace 20 step "RuntimeError: [pair.cc:598] Connection closed by peer [127.0.0.1]:2988"
exit 1`
	_, errs, code := runLocal(t, dir, patience, "run", "--workers", "2", "--max-restarts", "0", "--", "sh", "-c", script)
	at := 0
	for _, want := range []string{
		"· r0 on ", "ended because it lost a peer: RuntimeError: [pair.cc:598] Connection closed by peer",
		"✘ r1 on ", "failed: ValueError: shard 1 is truncated (train.py:7 in load, caused by KeyError: 'shard-1'), killed by signal 15 (SIGTERM)",
		"╭─ first error: r1 on ", "│ ValueError: shard 1 is truncated\n│   at train.py:7 in load\n│   caused by KeyError: 'shard-1'\n│ killed by signal 15 (SIGTERM)\n",
	} {
		i := strings.Index(errs[at:], want)
		if i < 0 {
			t.Fatalf("exit %d; what it says lacks %q, or has it too early:\n%s", code, want, errs)
		}
		at += i
	}
	out, errs, _ := runLocal(t, dir, patience, "status", "-o", "json")
	var v struct {
		State   string
		Workers []struct {
			Rank  int
			State string
		}
		FirstError struct {
			Rank      int
			Exception struct {
				Type, Function string
				Line           int
			}
		} `json:"first_error"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	if f := v.FirstError; v.State != "failed" || f.Rank != 1 || f.Exception.Type != "ValueError" || f.Exception.Line != 7 || f.Exception.Function != "load" {
		t.Errorf("a job that is %s has as its first error %+v", v.State, f)
	}
	for _, w := range v.Workers {
		if w.State != "failure" && w.State != "stopped" || len(v.Workers) != 2 {
			t.Errorf("the workers of an ended job are %+v", v.Workers)
		}
	}
}
