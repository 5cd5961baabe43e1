package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/terminal"
)

// bars prints a bar as tqdm does, in colours, and lines beside it; it ends when there is a file go.
const bars = `
import os, sys, time
rank = os.environ["RANK"]
def bar(n):
    sys.stderr.write(f"\r\x1b[32m{n:3d}%\x1b[0m|{'#' * (n // 10):10s}| of rank {rank}")
    sys.stderr.flush()
for n in range(0, 60, 10):
    bar(n)
print(f"\x1b[1mprinted\x1b[0m beside the bar of rank {rank}\x1b[2J", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
bar(100)
sys.stderr.write("\n")
`

// states are the states of the bar of a rank in some lines.
func states(text string, rank int) (all []string) {
	for _, m := range regexp.MustCompile(fmt.Sprintf(`(\d+)%%\|#* *\| of rank %d\n`, rank)).FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// TestProgressBars: where a line cannot be replaced a bar is its last state, and has no colours;
// logs knows the newest state while it runs.
func TestProgressBars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := begin(t, dir, "run", "--workers", "2", "--", "python3", "-c", bars)
	logs := func(args ...string) string {
		out, errs, code := runLocal(t, dir, time.Minute, append([]string{"logs"}, args...)...)
		if code != 0 {
			t.Logf("logs: exit %d: %s", code, errs) // the job may not be there yet
		}
		return out
	}
	for rank := range 2 {
		eventually(t, time.Minute, func() (bool, string) {
			out := logs()
			return slices.Equal(states(out, rank), []string{"50"}), "logs shows\n" + out
		})
	}
	if out := logs("-o", "jsonl"); strings.Count(out, `"open":true`) != 2 {
		t.Errorf("two lines are not finished:\n%s", out)
	}
	touch(t, filepath.Join(dir, "go"))
	if code := run.ends(time.Minute); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for what, out := range map[string]string{"run": run.said(), "logs": logs()} {
		for rank := range 2 {
			// A pipe has one of them every 30 s too, so more come on a very slow machine.
			got := states(out, rank)
			if len(got) == 0 || got[len(got)-1] != "100" || (what == "logs" && len(got) > 1) || len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Errorf("%s shows the states %v of rank %d:\n%s", what, got, rank, out)
			}
			if want := fmt.Sprintf("r%d g1] printed beside the bar of rank %[1]d\\x1b[2J\n", rank); !strings.Contains(out, want) {
				t.Errorf("%s lacks %q:\n%s", what, want, out)
			}
		}
		if strings.ContainsAny(out, "\r\x1b") || strings.Contains(out, `\r`) {
			t.Errorf("%s has control characters:\n%q", what, out)
		}
	}
	for text := range strings.Lines(logs("-o", "jsonl")) {
		var l struct {
			Text string
			Open bool
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Open || !strings.Contains(l.Text, "\x1b[") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// watched is what a program has written to a terminal.
type watched struct {
	mu     sync.Mutex
	raw    bytes.Buffer
	screen terminal.Screen
	wrong  error
}

func (w *watched) read(own *os.File) {
	buf := make([]byte, 4096)
	for {
		n, err := own.Read(buf)
		w.mu.Lock()
		w.raw.Write(buf[:n])
		if _, wrong := w.screen.Write(buf[:n]); wrong != nil {
			w.wrong = errors.Join(w.wrong, wrong)
		}
		w.mu.Unlock()
		if err != nil {
			return // EIO: nobody has the other side any more
		}
	}
}

func (w *watched) shows() (screen, raw string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.screen.String(), w.raw.String()
}

// TestProgressBarsOnATerminal are live, one line for each rank, in colours, above nothing but the
// status line; torchrun's too. Nothing else of what a worker prints is obeyed.
func TestProgressBarsOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
	}{
		{"run", []string{"run", "--workers", "2", "--", "python3", "bars.py"}},
		{"torchrun", []string{"torchrun", "--nproc-per-node", "2", "bars.py"}},
		{"logs", []string{"logs", "-f"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "bars.py"), []byte(bars), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.name == "logs" {
				begin(t, dir, "run", "--workers", "2", "--", "python3", "bars.py").says("printed beside")
			}
			own, theirs := terminal.Open(t)
			cmd := exec.Command(bin("regroup"), withState(dir, c.args)...)
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, theirs, theirs
			cmd.Env = append(os.Environ(), "NO_COLOR=", "TERM=xterm")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = theirs.Close()
			w := &watched{screen: terminal.Screen{Width: 100}}
			done := make(chan struct{})
			go func() { defer close(done); w.read(own) }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-done
			})
			eventually(t, time.Minute, func() (bool, string) {
				screen, raw := w.shows()
				live := strings.Contains(raw, "\x1b[32m 50%\x1b[0m") && strings.Contains(raw, "\x1b[1mprinted\x1b[0m beside")
				for rank := range 2 {
					live = live && slices.Equal(states(screen, rank), []string{"50"}) && strings.Contains(screen, fmt.Sprintf("printed beside the bar of rank %d\\x1b[2J\n", rank))
				}
				return live, "it shows\n" + screen
			})
			touch(t, filepath.Join(dir, "go"))
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			<-done
			screen, _ := w.shows()
			for rank := range 2 {
				if got := states(screen, rank); !slices.Equal(got, []string{"100"}) {
					t.Errorf("the states %v of rank %d are left:\n%s", got, rank, screen)
				}
			}
			if w.wrong != nil {
				t.Errorf("a terminal obeys %v:\n%s", w.wrong, screen)
			}
		})
	}
}

// TestTheTracebackAfterAFloodIsSeen, in what run shows, in logs and in the summary, and each line
// of the flood is there or counted.
func TestTheTracebackAfterAFloodIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const printed = 300_000
	script := fmt.Sprintf(`
import sys
for i in range(%d):
    print("line", i, "of a flood that is printed faster than it is stored")
sys.stdout.flush()
raise ValueError("shard 1 is truncated")
`, printed)
	out, errs, code := runLocal(t, dir, 3*time.Minute, "run", "--workers", "1", "--max-restarts", "0", "--", "python3", "-c", script)
	logs, _, _ := runLocal(t, dir, 3*time.Minute, "logs")
	for what, text := range map[string]string{"run": out, "logs": logs} {
		lines, lost := strings.Count(text, " of a flood that"), 0
		for _, m := range regexp.MustCompile(`regroup: (\d+) lines? dropped here`).FindAllStringSubmatch(text, -1) {
			lost += atoi(m[1])
		}
		if lines+lost != printed {
			t.Errorf("%s has %d lines and counts %d, of %d", what, lines, lost, printed)
		}
		if !strings.Contains(text, "] Traceback (most recent call last):\n") || !strings.Contains(text, "] ValueError: shard 1 is truncated\n") {
			t.Errorf("%s (exit %d) has no traceback; its end:\n%s", what, code, tail([]byte(text), 2000))
		}
	}
	for _, want := range []string{"died: ValueError: shard 1 is truncated", "│ Traceback (most recent call last):\n", "│ ValueError: shard 1 is truncated\n"} {
		if !strings.Contains(errs, want) {
			t.Errorf("the summary lacks %q:\n%s", want, errs)
		}
	}
}
