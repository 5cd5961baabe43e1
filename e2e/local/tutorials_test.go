package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regroup-io/regroup/e2e/pytorch"
)

// tutorialWithin bounds one tutorial, which takes its time where many tests run at once.
const tutorialWithin = 10 * time.Minute

// block is one of a document's: its language and its text.
type block struct{ language, text string }

// blocks returns the blocks of a document in their order.
func blocks(doc string) (all []block) {
	inside := false
	for line := range strings.Lines(doc) {
		name, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			all, inside = append(all, block{language: strings.TrimSpace(name)}), true
		case fence:
			inside = false
		case inside:
			all[len(all)-1].text += line
		}
	}
	return all
}

// TestTutorials runs the sh blocks of each tutorial in one shell, as a reader does, in a folder
// that looks like a checkout. The text block behind one shows lines of its output, in their order;
// times, numbers and names of this machine are those of another run.
func TestTutorials(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tutorials, err := filepath.Glob(filepath.Join(root, "docs", "tutorials", "*.md"))
	if err != nil || len(tutorials) != 3 {
		t.Fatalf("%q: %v, want three tutorials", tutorials, err)
	}
	python := filepath.Dir(pytorch.Python(t))
	for _, file := range tutorials {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) {
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			for name, to := range map[string]string{"bin": binaries, "python": filepath.Join(root, "python"), "examples": filepath.Join(root, "examples")} {
				if err := os.Symlink(to, filepath.Join(home, name)); err != nil {
					t.Fatal(err)
				}
			}
			tutorial(t, root, home, "PATH="+python+":"+os.Getenv("PATH"), addresses(t, string(doc)))
		})
	}
}

// loopback are the addresses that a tutorial gives to machines.
var loopback = regexp.MustCompile(`127\.0\.0\.\d+:\d+`)

// addresses replaces them by free ones.
func addresses(t *testing.T, doc string) string {
	free := map[string]string{}
	return loopback.ReplaceAllStringFunc(doc, func(a string) string {
		if free[a] == "" {
			free[a] = freeAddress(t)
		}
		return free[a]
	})
}

// tutorial runs one, and compares what it shows.
func tutorial(t *testing.T, root, home, path, doc string) {
	all := blocks(doc)
	var script strings.Builder
	// What a block leaves running ends with its shell.
	script.WriteString("set -eu\ntrap 'kill -9 $(jobs -p) 2>/dev/null || true; wait' EXIT\n")
	for i, b := range all {
		if b.language != "sh" {
			continue
		}
		fmt.Fprintf(&script, "exec > %d.out 2>&1\n", i)
		for line := range strings.Lines(b.text) {
			if target, ok := strings.CutPrefix(line, "make "); ok {
				line = "make -n -C " + root + " " + strings.TrimSpace(target) + " > make.out\n" // TestMain has built what it makes
			}
			script.WriteString(line)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), tutorialWithin)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-s")
	c.Stdin, c.Dir = strings.NewReader(script.String()), home
	c.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME=", "NO_COLOR=1", "REGROUP_SERVER=", path)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
	failed := c.Run()
	var last []byte // what the newest block that was run has printed
	for i, b := range all {
		out, err := os.ReadFile(filepath.Join(home, fmt.Sprint(i)+".out"))
		if err == nil {
			last = out
		}
		if b.language != "text" {
			continue
		}
		if out, err = os.ReadFile(filepath.Join(home, fmt.Sprint(i-1)+".out")); err != nil {
			continue // the block before was not run, or another language's
		}
		if missing := unseen(b.text, string(out)); missing != "" {
			t.Errorf("it does not print the line\n%s\nin its place:\n%s", missing, tail(out, 4000))
		}
	}
	if failed != nil {
		logs, _ := filepath.Glob(filepath.Join(home, "*.log"))
		for _, name := range logs {
			b, _ := os.ReadFile(name)
			t.Logf("%s:\n%s", filepath.Base(name), tail(b, 4000))
		}
		t.Fatalf("%v\n%s", failed, tail(last, 4000))
	}
}

// varying is what differs from run to run in what a tutorial shows: the name of the machine, a
// time, a number, what follows the name of a job, and the parts and losses of an incident.
var varying = regexp.MustCompile(`\b\d+ (?:failures?|generations?)\b|\bvm\b|\bnode1\b|\b[\d.]+(?:ms|s|m\d+s)\b|\b\d[\d.:]*\b|(?:first|digits|counted)-[0-9a-f]{4}|[(] ?notice [^)]*[)]|(?:heard again|came)|training again|steps lost (?:at least )?\S+|at least \d+ steps? lost`)

// unseen returns the first shown line that printed lacks behind those before.
func unseen(shown, printed string) string {
	lines := strings.Split(printed, "\n")
	for line := range strings.Lines(shown) {
		var p strings.Builder
		at := 0
		for _, m := range varying.FindAllStringIndex(line, -1) {
			p.WriteString(regexp.QuoteMeta(line[at:m[0]]) + `.+`)
			at = m[1]
		}
		p.WriteString(regexp.QuoteMeta(strings.TrimRight(line[at:], "\n")))
		pattern := regexp.MustCompile("^ *" + strings.Join(strings.Fields(p.String()), " +") + "$")
		for len(lines) > 0 && !pattern.MatchString(strings.TrimSpace(lines[0])) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return line
		}
		lines = lines[1:]
	}
	return ""
}
