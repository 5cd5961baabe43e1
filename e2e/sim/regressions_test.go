package sim

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRegressions replays shortened scenarios that failed once.
func TestRegressions(t *testing.T) {
	files, err := filepath.Glob("testdata/regressions/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if v := run(sc, mutation{}, nil); v != nil {
				t.Errorf("%s\n%s", v, script(sc))
			}
		})
	}
}

// TestAScriptIsReadAsItWasWritten checks that parse inverts script.
func TestAScriptIsReadAsItWasWritten(t *testing.T) {
	for s := range uint64(20) {
		want := script(draw(s))
		sc, err := parse(want)
		if err != nil || script(sc) != want {
			t.Errorf("seed %d: %v\n%s\n%s", s, err, want, script(sc))
		}
	}
}

// TestARunCanBeRepeated checks that a scenario always produces the same log.
func TestARunCanBeRepeated(t *testing.T) {
	for s := range uint64(5) {
		log := func() (lines []string) {
			run(draw(s), mutation{}, func(line string) { lines = append(lines, line) })
			return lines
		}
		a, b := log(), log()
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d, line %d:\n%s\n%s", s, i, a[i], b[i])
			}
		}
		if len(a) != len(b) {
			t.Errorf("seed %d: %d lines, then %d", s, len(a), len(b))
		}
	}
}
