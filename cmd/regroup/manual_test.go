package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/command"
	"github.com/regroup-io/regroup/cmd/regroup/internal/commandtest"
)

// TestDocs: every page is in the binary, and can be read and searched.
func TestDocs(t *testing.T) {
	w := commandtest.New(t)
	docs := func(args ...string) commandtest.Output {
		return w.Run(t.Context(), "", func(env command.Env) []*cobra.Command { return []*cobra.Command{manualCommand(env)} }, append([]string{"docs"}, args...)...)
	}
	list := docs()
	for _, want := range []string{"python", "The command line", "three-machines"} {
		if !strings.Contains(list.Out, want) {
			t.Errorf("the list has no %q:\n%s", want, list.Out)
		}
	}
	all, err := readPages()
	if err != nil || len(all) < 25 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	for _, p := range all {
		if p.Title == "" || strings.HasPrefix(p.Title, "#") || len(sectionsOf(p.text)) == 0 {
			t.Errorf("%s has the title %q", p.Name, p.Title)
		}
	}
	for _, c := range []struct {
		args  string
		exit  int
		begin string
		not   string
	}{
		{"cli", 0, "# The command line\n", ""},
		{"cli.md", 0, "# The command line\n", ""},
		{"reliab", 0, "# ", ""},
		{"cl", 3, "", ""},
		{"cli exit", 0, "## Exit codes\n", "## Units of systemd"},
		{"cli nothing-like-it", 3, "", ""},
		{"pythn", 3, "", ""},
		{"--find MASTER_port", 0, "", ""},
		{"cli --find MASTER_PORT-is-not-there", 3, "", ""},
	} {
		got := docs(strings.Fields(c.args)...)
		if got.Exit != c.exit || !strings.HasPrefix(got.Out, c.begin) || c.not != "" && strings.Contains(got.Out, c.not) {
			t.Errorf("docs %s: exit %d\n%.300s%s", c.args, got.Exit, got.Out, got.Err)
		}
	}
	if got, want := docs("reliab"), docs("reliability"); got.Out != want.Out || got.Out == "" {
		t.Errorf("the beginning of a name shows another page: %.80s", got.Out)
	}
	if got := docs("rel"); !strings.Contains(got.Err, "which one of release, reliability?") {
		t.Errorf("two pages begin so: %s", got.Err)
	}
	if got := docs("pythn"); !strings.Contains(got.Err, "python") {
		t.Errorf("no page is suggested: %s", got.Err)
	}
	if got := docs("cli", "nothing-like-it"); !strings.Contains(got.Err, "  Exit codes\n") {
		t.Errorf("no headings are named: %s", got.Err)
	}
}

// TestSectionsOf: a comment of a script is no heading, and a section ends where one as high begins.
func TestSectionsOf(t *testing.T) {
	all := sectionsOf("# A\n\ntext\n\n```sh\n# no heading\n```\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n#no heading\n")
	want := []string{"# A\n\ntext\n\n```sh\n# no heading\n```\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n#no heading\n", "## B\n\nb\n\n### C\n\nc\n\n", "### C\n\nc\n\n", "## D\n#no heading\n"}
	if len(all) != len(want) {
		t.Fatalf("%d sections: %+v", len(all), all)
	}
	for i := range want {
		if all[i].text != want[i] {
			t.Errorf("section %d is %q, want %q", i, all[i].text, want[i])
		}
	}
}
