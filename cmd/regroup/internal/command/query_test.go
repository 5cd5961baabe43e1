package command_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
)

type member struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
}

type thing struct {
	State   string   `json:"state"`
	Step    uint64   `json:"step"`
	Share   float64  `json:"share"`
	Workers []member `json:"workers"`
}

var things = []thing{
	{"running", 9007199254740993, 0.5, []member{{0, "node-a"}, {1, "node-b"}}},
	{"fai\x1bled", 7, 1, nil},
}

// write is what a reading command writes of a value, or the error of its flag.
func write(form string, v any) (string, error) {
	var out bytes.Buffer
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	f := command.Reading(cmd, command.Text, command.JSON, command.YAML)
	cmd.RunE = func(*cobra.Command, []string) error {
		_, err := f.Write(&out, v)
		return err
	}
	cmd.SetArgs([]string{"-o", form})
	err := cmd.Execute()
	return out.String(), err
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		form, want string
		v          any
	}{
		{"jsonpath=$.state", "running\n", things[0]},
		{"jsonpath=$.step", "9007199254740993\n", things[0]},
		{"jsonpath=$.workers[?@.rank == 1].node", "node-b\n", things[0]},
		{"jsonpath=$.workers[?@.rank > 0 && @.node == 'node-b']", "{\"node\":\"node-b\",\"rank\":1}\n", things[0]},
		{"jsonpath=$[?@.share < 0.75].state", "running\n", things},
		{"jsonpath=$[*].state", "running\nfai\\x1bled\n", things},
		{"jsonpath=$.none", "", things[0]},
		{"template={{.state}} {{.step}} {{.share}}", "running 9007199254740993 0.5\n", things[0]},
		{"template={{range .}}{{.state}}:{{len .workers}}\n{{end}}", "running:2\nfai\\x1bled:0\n", []thing{things[0], {State: "fai\x1bled", Workers: []member{}}}},
		{"template={{range .workers}}{{if eq .rank 1}}{{json .}}{{end}}{{end}}", "{\"node\":\"node-b\",\"rank\":1}\n", things[0]},
		{"jsonl", `{"state":"running","step":9007199254740993,"share":0.5,"workers":[{"rank":0,"node":"node-a"},{"rank":1,"node":"node-b"}]}` + "\n" + `{"state":"fai\u001bled","step":7,"share":1,"workers":null}` + "\n", things},
		{"jsonl", "{\"rank\":1,\"node\":\"a\"}\n", member{1, "a"}},
		{"text", "", things},
	} {
		if got, err := write(c.form, c.v); err != nil || got != c.want {
			t.Errorf("-o %s: %q, %v, want %q", c.form, got, err, c.want)
		}
	}
}

// TestFormErrors name the flag, and the position in its text.
func TestFormErrors(t *testing.T) {
	for form, want := range map[string][]string{
		"jsonpath=$.a[":                {`"-o, --output"`, "position 5"},
		"jsonpath=.state":              {`"-o, --output"`, "a path begins with $", "jsonpath=$.state"},
		"jsonpath={.state}":            {`"-o, --output"`, "a path begins with $"},
		"jsonpath=":                    {`"-o, --output"`, "a path begins with $"},
		"template={{.state":            {`"-o, --output"`, "line 1: unclosed action"},
		"template=\n{{nosuch .state}}": {`"-o, --output"`, `line 2: function "nosuch" not defined`},
		"template={{.state.more}}":     {"-o template=", "line 1, column 9: "},
		"jsonpth=$.a":                  {`"-o, --output"`, "unknown form"},
		"jsno":                         {`"-o, --output"`, `did you mean "json"?`},
	} {
		out, err := write(form, things[0])
		if err == nil || out != "" {
			t.Errorf("-o %s: %q, %v", form, out, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("-o %s: %v, want %q", form, err, part)
			}
		}
	}
}
