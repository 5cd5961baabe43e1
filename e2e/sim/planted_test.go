package sim

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// bugs are changes of the controller's source that the simulation must detect. No seed before from
// shows the bug.
var bugs = []struct {
	name, file, is, becomes string
	from                    int
}{
	{"sets no timer for a deadline", "core.go", "set(deadlineTimer, c.processor.Deadline(entity))", "set(deadlineTimer, time.Time{})", 0},
	{"takes what another replica has left in an outbox for published", "cache.go", "e.doc.Published, len(e.doc.Outbox) == 0", "e.doc.Published, true", 0},
	{"takes a conflict for a save", "processor.go", "case errors.Is(err, errcode.ErrConflict):\n\t\treturn 0, true, nil", "case errors.Is(err, errcode.ErrConflict):\n\t\treturn revision + 1, false, nil", 0},
}

// planted is the first seed for a broken controller; a negative value disables TestPlanted.
var planted = flag.Int("planted", -1, "run with a broken controller from this seed on, until an invariant is violated")

// TestPlanted runs seeds with a broken controller.
func TestPlanted(t *testing.T) {
	for s := max(*planted, 0); *planted >= 0 && s < *planted+300; s++ {
		if v := run(draw(uint64(s)), mutation{}, nil); v != nil {
			t.Fatalf("seed %d: %s", s, v)
		}
	}
}

// TestBugsPlantedInTheControllerAreCaught builds this package with a broken controller and
// unchanged machines, and runs seeds until an invariant is violated.
func TestBugsPlantedInTheControllerAreCaught(t *testing.T) {
	found := regexp.MustCompile(`seed \d+: invariant \d+[^\n]*`)
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			source, err := filepath.Abs(filepath.Join("../../services/controller", b.file))
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(source)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), b.is); n != 1 {
				t.Fatalf("%s has %q %d times", b.file, b.is, n)
			}
			dir := t.TempDir()
			broken, overlay := filepath.Join(dir, b.file), filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(broken, []byte(strings.Replace(string(text), b.is, b.becomes, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			list, err := json.Marshal(map[string]map[string]string{"Replace": {source: broken}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(overlay, list, 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-timeout", "30m", "-overlay", overlay, ".", "-run", "^TestPlanted$", "-planted", strconv.Itoa(b.from)).CombinedOutput()
			line := found.FindString(string(out))
			if err == nil || line == "" {
				t.Fatalf("no invariant was violated: %v\n%.2000s", err, out)
			}
			t.Logf("%.300s", line)
		})
	}
}
