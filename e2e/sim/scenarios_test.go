package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestScenarios plays the written scenarios: each must keep every invariant and meet what it
// expects, and tell the story that people have read.
func TestScenarios(t *testing.T) {
	for _, name := range scenarioNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "testdata/scenarios/" + name + ".txt"
			text, wrong := played(t, file, mutation{})
			if wrong != "" {
				t.Error(wrong)
			}
			golden.Compare(t, file, text)
		})
	}
}

func scenarioNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".txt")
	}
	return files
}

// abridged is what people read of a story: from the words on that the script names, without what
// goes without saying.
func abridged(sc scenario, lines []string) string {
	var b strings.Builder
	told := sc.from == ""
	for _, line := range lines {
		if told = told || strings.Contains(line, sc.from) || strings.Contains(line, "VIOLATED"); !told {
			continue
		}
		if strings.Contains(line, "faults have stopped") {
			break
		}
		if !slices.ContainsFunc([]string{": fact started", ": fact ready", ": fact done", "refused: not connected"}, func(w string) bool { return strings.Contains(line, w) }) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// played returns a file's script with the story that follows from it, and what is wrong with that.
func played(t *testing.T, file string, m mutation) (text, wrong string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := strings.Cut(string(b), "----\n")
	if !strings.HasPrefix(given, "# ") {
		t.Errorf("%s: the first line must say in a sentence what must happen", file)
	}
	sc, err := parse(given)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var lines []string
	v := run(sc, m, func(line string) { lines = append(lines, line) })
	var missed []string
	if v != nil {
		missed = append(missed, v.String())
	}
	missed = append(missed, unmet(sc.expects, lines)...)
	return given + "----\n" + abridged(sc, lines), strings.Join(missed, "\n")
}
