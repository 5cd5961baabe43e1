package regroup_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestWorkedChanges: the diffs in CONTRIBUTING.md apply to this tree.
func TestWorkedChanges(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```diff\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("no diff")
	}
	for _, block := range blocks {
		c := exec.Command("git", "apply", "--check", "-")
		c.Stdin = strings.NewReader(block[1])
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s%s", err, out, block[1])
		}
	}
}
