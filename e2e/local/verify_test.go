package local

import (
	"strings"
	"testing"
)

// TestStatesOfJobsAreCompared: of Go programs, whose state has one hash with one worker and two.
func TestStatesOfJobsAreCompared(t *testing.T) {
	dir := t.TempDir()
	begin(t, dir, "up", "--slots", "2").prints("regroup is up")
	train := func(name, workers, seed string) {
		t.Helper()
		_, errs, code := runLocal(t, dir, patience, "run", "--name", name, "--workers", workers, "--recovery", "in-process", "--",
			bin("mnist"), "-reproducible", "-epochs", "1", "-seed", seed)
		if code != 0 || !strings.Contains(errs, "state after step 141: ") {
			t.Fatalf("%s exits %d, want 0 and the hash of its state:\n%s", name, code, errs)
		}
	}
	train("one", "1", "1")
	train("two", "2", "1")
	train("other", "2", "2")
	for other, want := range map[string]struct {
		code int
		text string
	}{
		"two":   {0, "the same after each of 2 steps: 100, 141"},
		"other": {15, "in velocity, weights"},
	} {
		out, errs, code := runLocal(t, dir, atOnce, "verify", "one", other)
		if code != want.code || !strings.Contains(out, want.text) {
			t.Errorf("verify one %s exits %d, want %d and %q:\n%s%s", other, code, want.code, want.text, out, errs)
		}
	}
}
