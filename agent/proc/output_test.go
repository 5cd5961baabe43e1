package proc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
)

// TestABarIsShownWhileItRuns: the states of a line that a program overwrites are passed on before
// it is finished, and it is one line then. Colours are passed on, and not part of what the fact of
// the exit has.
func TestABarIsShownWhileItRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, Options{})
	const script = `printf '\r\033[32m 10%%\033[0m' >&2; printf '\r\033[32m 50%%\033[0m' >&2; echo printed; until test -e go; do sleep 0.01; done; printf '\r\033[32m100%%\033[0m\n' >&2; printf '1 of 2\r2 of 2\r'`
	r.startWith(worker.StartProcess{Worker: r.id, Dir: dir, Command: []string{"sh", "-c", script}, Env: map[string]string{"REGROUP_INCARNATION": string(r.id)}})
	next[worker.ProcessStarted](r)
	states := func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.states)
	}
	const half = "\x1b[32m 50%\x1b[0m"
	// Polled: a part of a line comes after a time without more, at no event of the driver.
	for end := time.Now().Add(time.Minute); !slices.Contains(states(), half); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is there after a minute", states())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x := next[worker.ProcessExited](r)
	got := slices.Sorted(slices.Values(r.output()))
	if want := []string{"\x1b[32m100%\x1b[0m", "2 of 2", "printed"}; !slices.Equal(got, want) {
		t.Errorf("it wrote %q, want %q", got, want)
	}
	if got := slices.Sorted(slices.Values(x.Lines)); !slices.Equal(got, []string{"100%", "2 of 2", "printed"}) {
		t.Errorf("the fact of the exit has %q", got)
	}
}

// TestATracebackIsNotDisplaced by what is printed to the other stream, nor hidden by a bar or by
// colours.
func TestATracebackIsNotDisplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	const script = `
printf '\r 10%%|#  | 1/10' >&2
printf '\033[1mTraceback (most recent call last):\033[0m\n  File \033[35m"/w/train.py"\033[0m, line \033[35m7\033[0m, in \033[35mload\033[0m\n    x\n\033[1;35mValueError\033[0m: \033[35mtorn\033[0m\n' >&2
yes flood | head -n 1000
exit 1`
	r.start("sh", "-c", script)
	next[worker.ProcessStarted](r)
	x := next[worker.ProcessExited](r)
	if x.Exception == nil || x.Exception.String() != "ValueError: torn (/w/train.py:7 in load)" {
		t.Errorf("the exception is %v", x.Exception)
	}
	all := strings.Join(x.Lines, "\n")
	if !strings.Contains(all, "ValueError: torn") || !strings.Contains(all, "Traceback") || len(x.Lines) != 20 {
		t.Errorf("the last lines are %q", x.Lines)
	}
}
