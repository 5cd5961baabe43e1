package local

import (
	"strings"
	"testing"
)

// TestHorovodrun: with horovodrun's own command line a program is restarted as a group, and one
// that would be elastic there survives in its process, unless the call says something else.
func TestHorovodrun(t *testing.T) {
	t.Parallel()
	counter := []string{bin("counter"), "-steps", "20", "-samples", "600", "-batch", "60"}
	for name, c := range map[string]struct {
		args     []string
		printed  string
		recovery string
		told     bool // that it is elastic
	}{
		"a number":          {[]string{"-np", "2", "-H", "localhost:2", "sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE"}, "rank 1 of 2", "restart", false},
		"elastic":           {append([]string{"-np", "2", "--min-np", "1", "--max-np", "2"}, counter...), "", "in-process", true},
		"found by a script": {append([]string{"-np", "1", "--host-discovery-script", "echo localhost:2"}, counter...), "", "in-process", true},
		"as it says":        {[]string{"--min-num-proc", "2", "--max-num-proc", "2", "--recovery", "restart", "sh", "-c", "echo rank $RANK"}, "rank 1", "restart", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out, errs, code := runLocal(t, dir, patience, append([]string{"horovodrun"}, c.args...)...)
			if code != 0 || !strings.Contains(out, c.printed) || strings.Contains(errs, "workers survive in their processes") != c.told {
				t.Errorf("exit %d: %s%s", code, out, errs)
			}
			if got, errs, code := runLocal(t, dir, patience, "status", "-o", "jsonpath=$.spec.recovery"); code != 0 || strings.TrimSpace(got) != c.recovery {
				t.Errorf("its recovery is %q, want %s: %s", got, c.recovery, errs)
			}
		})
	}
}
