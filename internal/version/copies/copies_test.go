package copies

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/version"
)

// TestCopies: all files of a release say the same version.
func TestCopies(t *testing.T) {
	for _, c := range All {
		if got, err := c.Read("../../.."); err != nil || got != version.Number {
			t.Errorf("%s says %q (%v), and Number is %s: make version VERSION=%s", c.File, got, err, version.Number, version.Number)
		}
	}
	changes, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile(`(?m)^## (.*)$`).FindSubmatch(changes)
	if first == nil || !strings.HasPrefix(string(first[1])+" ", version.Number+" ") {
		t.Errorf("the first section of CHANGELOG.md is %q, want %s", first, version.Number)
	}
}

func TestWrite(t *testing.T) {
	root := t.TempDir()
	c := Copy{"file", `(?m)^version: ` + number + `$`}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(root, "file"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("name: a\nversion: 0.1.0\nend: b\n")
	if err := c.Write(root, "0.10.2"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "file"))
	if err != nil || string(b) != "name: a\nversion: 0.10.2\nend: b\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := c.Write(root, "v1.0"); err == nil || !strings.Contains(err.Error(), `version "v1.0": want three numbers`) {
		t.Error(err)
	}
	write("version: 0.1.0\nversion: 0.1.0\n")
	if _, err := c.Read(root); err == nil || !strings.Contains(err.Error(), "several times") {
		t.Error(err)
	}
	write("version: new\n")
	if _, err := c.Read(root); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Error(err)
	}
}
