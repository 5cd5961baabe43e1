package torchrun

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/ident"
)

// shown is an environment whose output is in files.
func shown(out, errs io.Writer) command.Env {
	return command.Env{Out: out, Err: errs, Getenv: func(string) string { return "" }, Now: time.Now}
}

// TestConsole: what is shown and what is written, of two workers' output.
func TestConsole(t *testing.T) {
	lines := []logs.Line{
		{Rank: 4, LocalRank: 0, Generation: 1, Stream: "stdout", Text: "zero, out"},
		{Rank: 4, LocalRank: 0, Generation: 1, Stream: "stderr", Text: "zero, err"},
		{Rank: 5, LocalRank: 1, Generation: 1, Stream: "stdout", Text: "one, out"},
		{Rank: 5, LocalRank: 1, Generation: 2, Stream: "stderr", Text: "one 50%", Open: true},
		{Rank: 5, LocalRank: 1, Generation: 2, Stream: "stderr", Text: "one\x1b[2J \x1b[31merr"},
	}
	for name, c := range map[string]struct {
		args     string
		out, err string
		files    map[string]string
	}{
		"as it is":              {"", "zero, out\none, out\n", "zero, err\none\\x1b[2J err\n", nil},
		"tee":                   {"-t 3", "[default0]:zero, out\n[default1]:one, out\n", "[default0]:zero, err\n[default1]:one\\x1b[2J err\n", nil},
		"tee of one with files": {"-t 1:1 --log-dir DIR", "zero, out\n[default1]:one, out\n", "zero, err\none\\x1b[2J err\n", map[string]string{"attempt_0/1/stdout.log": "one, out\n"}},
		"redirects": {"-r 2 --log-dir DIR", "zero, out\none, out\n", "", map[string]string{
			"attempt_0/0/stderr.log": "zero, err\n", "attempt_1/1/stderr.log": "one\x1b[2J \x1b[31merr\n",
		}},
		"filter": {"--local-ranks-filter 1 --log-dir DIR", "one, out\n", "one\\x1b[2J err\n", map[string]string{"attempt_0/0/stdout.log": "zero, out\n", "attempt_0/0/stderr.log": "zero, err\n"}},
		"template and duplicates": {
			"--role t --log-line-prefix-template ${hostname}.${rank}.${local_rank}.${role_name}| --duplicate-stdout-filters zero,,,none --log-dir DIR", "zero, out\none, out\n", "zero, err\none\\x1b[2J err\n",
			map[string]string{"attempt_0/filtered_stdout.log": "h.4.0.t|zero, out\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o, _ := parse(t, nil, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
			var out, errs strings.Builder
			console, err := newConsole(o, shown(&out, &errs), screen.Auto, "h", "run")
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range lines {
				console.line(l)
			}
			if err := console.close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.out || errs.String() != c.err {
				t.Errorf("shows %q and %q, want %q and %q", out.String(), errs.String(), c.out, c.err)
			}
			found := map[string]string{}
			err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
				if err != nil || info.IsDir() {
					return err
				}
				b, err := os.ReadFile(path)
				name, _ := filepath.Rel(dir, path)
				_, name, _ = strings.Cut(name, "/") // the folder of the run has a random name
				found[name] = string(b)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for file, want := range c.files {
				if found[file] != want {
					t.Errorf("%s has %q, want %q", file, found[file], want)
				}
			}
			if len(found) != len(c.files) {
				t.Errorf("files %q", found)
			}
		})
	}
}

// TestOutputThatCannotBeWritten: the command says so at its end.
func TestOutputThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := parse(t, nil, "-r", "3", "--log-dir", file)
	console, err := newConsole(o, shown(&strings.Builder{}, &strings.Builder{}), screen.Auto, "h", "run")
	if err != nil {
		t.Fatal(err)
	}
	console.line(logs.Line{Stream: "stdout", Text: "x"})
	if err := console.close(); err == nil || !strings.Contains(err.Error(), "--log-dir: output is missing") {
		t.Error(err)
	}
}

// TestTheIdOfARunStaysInTheFolderForLogs: whatever it is.
func TestTheIdOfARunStaysInTheFolderForLogs(t *testing.T) {
	for _, run := range []string{"../../outside", "/etc", "a/b", ".."} {
		dir := filepath.Join(t.TempDir(), "logs")
		o, _ := parse(t, nil, "-r", "3", "--log-dir", dir)
		console, err := newConsole(o, shown(&strings.Builder{}, &strings.Builder{}), screen.Auto, "h", run)
		if err != nil {
			t.Fatal(err)
		}
		console.line(logs.Line{Stream: "stdout", Text: "x"})
		if err := console.close(); err != nil {
			t.Error(err)
		}
		if found, err := filepath.Glob(filepath.Join(dir, "*", "attempt_0", "0", "stdout.log")); err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v", run, found, err)
		}
	}
}

// TestErrorFilesBesideTheOutput: each worker has one of its own, which can be written.
func TestErrorFilesBesideTheOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	o, _ := parse(t, nil, "--log-dir", "logs")
	console, err := newConsole(o, shown(&strings.Builder{}, &strings.Builder{}), screen.Auto, "h", "run")
	if err != nil {
		t.Fatal(err)
	}
	for g, attempt := range []string{1: "attempt_0", 2: "attempt_1"} {
		if attempt == "" {
			continue
		}
		path := console.errorFile(3, ident.Generation(g))
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Error(err)
		}
		want, err := filepath.Glob(filepath.Join("logs", "run_*", attempt, "3", "error.json"))
		if err != nil || len(want) != 1 || !filepath.IsAbs(path) {
			t.Errorf("%s: %v, %v", path, want, err)
		}
	}
	o, _ = parse(t, nil)
	if console, err = newConsole(o, shown(&strings.Builder{}, &strings.Builder{}), screen.Auto, "h", "run"); err != nil || console.errorFile(0, 1) != "" {
		t.Errorf("without --log-dir: %v", err)
	}
}
