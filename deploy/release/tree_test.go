package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/version"
	"github.com/regroup-io/regroup/internal/version/copies"
)

// tree makes a repository with the files that have the version, and a released CHANGELOG.md.
func tree(t *testing.T) (root string, git func(args ...string)) {
	t.Helper()
	root = t.TempDir()
	for _, c := range copies.All {
		b, err := os.ReadFile(filepath.Join("../..", c.File))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, c.File), string(b))
	}
	write(t, filepath.Join(root, "CHANGELOG.md"), "# Changelog\n\n## "+version.Number+" (2026-12-31)\n\nAll of it.\n")
	for name, value := range map[string]string{"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b", "GIT_COMMITTER_DATE": "2026-12-31T12:00:00Z"} {
		t.Setenv(name, value)
	}
	git = func(args ...string) {
		t.Helper()
		if _, err := output(t.Context(), root, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "all")
	return root, git
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCheck: a tree is released only if it is exactly the commit of the tag of its version.
func TestCheck(t *testing.T) {
	root, git := tree(t)
	refused := func(want string) {
		t.Helper()
		if _, err := check(t.Context(), root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused("this commit has no tag: git tag -s v" + version.Number)
	git("tag", "v99.0.0")
	refused("the tag of this commit is v99.0.0, and the version in the tree is " + version.Number + ": make version VERSION=99.0.0")
	git("tag", "v"+version.Number)
	c, err := check(t.Context(), root)
	if err != nil || len(c.Hash) != 40 || !c.Time.Equal(time.Date(2026, 12, 31, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", c, err)
	}
	write(t, filepath.Join(root, "new"), "")
	refused("the tree differs from its commit: commit or remove\n?? new")
	git("add", ".")
	git("commit", "-q", "-m", "one more")
	refused("has no tag")
	for _, change := range []struct{ file, from, to, want string }{
		{"python/regroup/__init__.py", version.Number, "9.9.9", "python/regroup/__init__.py says 9.9.9"},
		{"CHANGELOG.md", "(2026-12-31)", "(unreleased)", "make version VERSION=" + version.Number + " DATE=YYYY-MM-DD"},
		{"CHANGELOG.md", version.Number, "0.0.9", "CHANGELOG.md has no section ## " + version.Number},
		{"CHANGELOG.md", "All of it.", "", "CHANGELOG.md says nothing about"},
	} {
		b, err := os.ReadFile(filepath.Join(root, change.file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, change.file), strings.Replace(string(b), change.from, change.to, 1))
		git("commit", "-q", "-a", "-m", "changed")
		git("tag", "-f", "v"+version.Number)
		refused(change.want)
		write(t, filepath.Join(root, change.file), string(b))
		git("commit", "-q", "-a", "-m", "as it was")
	}
}

// TestSetVersion: a version gets into every copy, and a section into CHANGELOG.md, once.
func TestSetVersion(t *testing.T) {
	root, _ := tree(t)
	for _, date := range []string{"", "2027-01-31"} {
		if err := setVersion(root, "0.99.1", date); err != nil {
			t.Fatal(err)
		}
		for _, c := range copies.All {
			if got, err := c.Read(root); err != nil || got != "0.99.1" {
				t.Errorf("%s: %q, %v", c.File, got, err)
			}
		}
		b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
		want := map[string]string{"": "unreleased"}[date] + date
		if err != nil || string(b) != "# Changelog\n\n## 0.99.1 ("+want+")\n\n## "+version.Number+" (2026-12-31)\n\nAll of it.\n" {
			t.Errorf("%s, %v", b, err)
		}
	}
	if err := setVersion(root, "0.99.1", "soon"); err == nil || !strings.Contains(err.Error(), `-date "soon": want a day`) {
		t.Error(err)
	}
	if err := setVersion(root, "", ""); err == nil || !strings.Contains(err.Error(), `version "": want three numbers`) {
		t.Error(err)
	}
}

func TestNotes(t *testing.T) {
	const text = "# Changelog\n\n## 0.2.0 (2027-01-01)\n\n### Added\n\n- more\n\n## 0.1.0 (2026-12-31)\n\n- all\n"
	for number, want := range map[string]string{"0.2.0": "### Added\n\n- more\n", "0.1.0": "- all\n"} {
		if got, err := notes(text, number); err != nil || got != want {
			t.Errorf("%s: %q, %v", number, got, err)
		}
	}
}
