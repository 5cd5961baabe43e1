package sim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestScenarios runs the written scenarios: each must keep every invariant, meet its expectations,
// and produce the recorded log.
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

// abridged is the recorded part of a log: from the words on that the script names, without routine
// lines.
func abridged(sc scenario, lines []string) string {
	var b strings.Builder
	recording := sc.from == ""
	for _, line := range lines {
		if recording = recording || strings.Contains(line, sc.from) || strings.Contains(line, "VIOLATED"); !recording {
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

// played returns a file's script with the log of its run, and the expectations that the run
// violates.
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
