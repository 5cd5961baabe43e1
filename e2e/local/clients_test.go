package local

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/client"
)

// programs returns the blocks of a document below their headings, with their language first.
func programs(doc string) map[string][2]string {
	out := map[string][2]string{}
	heading, language, text := "", "", ""
	for line := range strings.Lines(doc) {
		switch name, isHeading := strings.CutPrefix(line, "## "); {
		case language != "" && strings.TrimSpace(line) == "```":
			out[heading] = [2]string{language, text}
			language, text = "", ""
		case language != "":
			text += line
		case isHeading:
			heading = strings.TrimSpace(name)
		case strings.HasPrefix(line, "```"):
			language = strings.TrimSpace(strings.TrimPrefix(line, "```"))
		}
	}
	return out
}

// TestClientsOfTheDocument runs each program of docs/clients.md as it stands there, against a
// gateway of this machine.
func TestClientsOfTheDocument(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := empty(t)
	address := freeAddress(t)
	t.Setenv("REGROUP_GATEWAY_LISTEN", "127.0.0.1:0")
	t.Setenv("REGROUP_SECRET", "0123456789abcdef")
	c.start("up", "up", "--dashboard", "--listen", address, "--slots", "2", "--state-dir", c.dir)
	var at client.Record
	eventually(t, patience, func() (bool, string) {
		at, err = client.Find(c.dir)
		return err == nil, fmt.Sprint(err)
	})
	environment := append(os.Environ(), "REGROUP_GATEWAY_URL="+at.URL, "REGROUP_GATEWAY_TOKEN="+at.Token, "NATS_URL=nats://regroup:0123456789abcdef@"+address,
		"PYTHONPATH="+filepath.Join(root, "python"))
	ends := []string{"dev.regroup.job.submitted.v1", "dev.regroup.job.succeeded.v1"}
	want := map[string][]string{ // by heading: what it prints
		"curl":              {"hello from curl", `"outcome":"succeeded"`},
		"Python":            append([]string{"hello from Python", "\nsucceeded\n"}, ends...),
		"Go":                {"exit code 0", "hello from Go", "succeeded"},
		"A NATS client":     ends,
		"A CloudEvents SDK": ends,
	}
	all := programs(string(doc))
	if len(all) != len(want) {
		t.Errorf("the document has %d programs, want %d", len(all), len(want))
	}
	for heading, words := range want {
		t.Run(heading, func(t *testing.T) {
			p := all[heading]
			cmd := exec.CommandContext(t.Context(), p[0])
			cmd.Stdin = strings.NewReader(p[1])
			switch p[0] {
			case "bash":
				cmd.Args = append(cmd.Args, "-euo", "pipefail", "-s")
			case "python":
				cmd = exec.CommandContext(t.Context(), "python3", "-")
				cmd.Stdin = strings.NewReader(p[1])
			case "js":
				cmd = exec.CommandContext(t.Context(), "node", "--input-type=module", "-")
				cmd.Stdin = strings.NewReader(p[1])
				cmd.Dir = "testdata/foreign"
			case "go":
				file := filepath.Join(t.TempDir(), "main.go")
				if err := os.WriteFile(file, []byte(p[1]), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd.Args, cmd.Dir = append(cmd.Args, "run", file), root
			default:
				t.Fatalf("no program below %q is known: %q", heading, p[0])
			}
			cmd.Env = environment
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, w := range words {
				if !strings.Contains(strings.ReplaceAll(string(out), `": "`, `":"`), w) {
					t.Errorf("it does not print %q:\n%s", w, out)
				}
			}
		})
	}
	jobs := exec.CommandContext(t.Context(), bin("regroup"), "ls", "--all", "-o", "json", "--server", "nats://"+address)
	out, err := jobs.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var list []struct{ State string }
	if err := json.Unmarshal(out, &list); err != nil || len(list) != len(want) {
		t.Errorf("%v: %d jobs, want one of each program", err, len(list))
	}
	for _, j := range list {
		if j.State != "succeeded" {
			t.Errorf("a job is %s", j.State)
		}
	}
}
