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
		out, errs, code := runLocal(t, dir, patience, append([]string{"logs"}, args...)...)
		if code != 0 {
			t.Logf("logs: exit %d: %s", code, errs) // the job may not be there yet
		}
		return out
	}
	for rank := range 2 {
		eventually(t, patience, func() (bool, string) {
			out := logs()
			return slices.Equal(states(out, rank), []string{"50"}), "logs shows\n" + out
		})
	}
	if out := logs("-o", "jsonl"); strings.Count(out, `"open":true`) != 2 {
		t.Errorf("two lines are not finished:\n%s", out)
	}
	touch(t, filepath.Join(dir, "go"))
	if code := run.ends(patience); code != 0 {
		t.Fatalf("exit %d", code)
	}
	for what, out := range map[string]string{"run": run.printed(), "logs": logs()} {
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

// barsIn writes the script that prints bars into a folder.
func barsIn(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "bars.py"), []byte(bars), 0o600); err != nil {
		t.Fatal(err)
	}
}

// watched is a command of the binary, and what it has written to a terminal.
type watched struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed once it has ended and all is read
	mu     sync.Mutex
	raw    bytes.Buffer
	screen terminal.Screen
	wrong  error
}

// onTerminal starts a command of the binary in a folder, on a terminal of its own.
func onTerminal(t *testing.T, dir string, args ...string) *watched {
	t.Helper()
	own, theirs := terminal.Open(t)
	w := &watched{cmd: exec.Command(bin("regroup"), withState(dir, args)...), done: make(chan struct{}), screen: terminal.Screen{Width: 100}}
	w.cmd.Dir, w.cmd.Stdout, w.cmd.Stderr = dir, theirs, theirs
	w.cmd.Env = append(os.Environ(), "NO_COLOR=", "TERM=xterm")
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	go func() { defer close(w.done); w.read(own) }()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.done
	})
	return w
}

// live waits until the terminal shows the bars of both ranks, and what they print beside them.
func (w *watched) live(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() (bool, string) {
		screen, raw := w.shows()
		live := strings.Contains(raw, "\x1b[32m 50%\x1b[0m") && strings.Contains(raw, "\x1b[1mprinted\x1b[0m beside")
		for rank := range 2 {
			live = live && slices.Equal(states(screen, rank), []string{"50"}) && strings.Contains(screen, fmt.Sprintf("printed beside the bar of rank %d\\x1b[2J\n", rank))
		}
		return live, "it shows\n" + screen
	})
}

// ends waits for the end of the command.
func (w *watched) ends() error {
	err := w.cmd.Wait()
	<-w.done
	return err
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
			barsIn(t, dir)
			if c.name == "logs" {
				begin(t, dir, "run", "--workers", "2", "--", "python3", "bars.py").prints("printed beside")
			}
			w := onTerminal(t, dir, c.args...)
			w.live(t)
			touch(t, filepath.Join(dir, "go"))
			if err := w.ends(); err != nil {
				t.Error(err)
			}
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

// TestCtrlCBesideBars: what is said about it has a line of its own, above the bars.
func TestCtrlCBesideBars(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	barsIn(t, dir)
	w := onTerminal(t, dir, "run", "--name", "bars", "--workers", "2", "--", "python3", "bars.py")
	w.live(t)
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := w.ends(); !errors.As(err, &exit) || exit.ExitCode() != 11 {
		t.Errorf("it ends with %v, want 11: the job was stopped", err)
	}
	screen, _ := w.shows()
	if !regexp.MustCompile(`(?m)^stopping bars-[0-9a-f]+; Ctrl-C again kills it$`).MatchString(screen) {
		t.Errorf("what it says has no line of its own:\n%s", screen)
	}
	for rank := range 2 {
		if got := states(screen, rank); !slices.Equal(got, []string{"50"}) {
			t.Errorf("the states %v of rank %d are left:\n%s", got, rank, screen)
		}
	}
	if w.wrong != nil {
		t.Errorf("a terminal obeys %v:\n%s", w.wrong, screen)
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
