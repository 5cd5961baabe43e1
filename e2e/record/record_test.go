package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// two workers, four samples, two a step: generation 1 makes steps 1 to 3 and commits 2; generation
// 2 begins at 2 and makes 3 and 4.
var whole = map[string]string{
	"a": `B 10 1 0 2 0
S 11 1 1 0 3
D 12 1 1
S 13 1 2 0 1
D 14 1 2
C 15 1 2
S 16 1 3 1 2
D 17 1 3
S 18 1 4 1 1
B 40 2 0 2 2
S 41 2 3 1 2
D 42 2 3
S 43 2 4 1 0
D 44 2 4
E 45 4 2 0
`,
	"b": `B 10 1 1 2 0
S 11 1 1 0 0
D 12 1 1
S 13 1 2 0 2
D 14 1 2
C 15 1 2
S 16 1 3 1 3
D 19 1 3
S 18 1 4 1 0
B 40 2 1 2 2
S 41 2 3 1 3
D 43 2 3
S 43 2 4 1 1
D 45 2 4
S 45 2 5 2`,
}

func read(t *testing.T, files map[string]string) (*History, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".rec"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Read(dir)
}

func TestStepsThatCount(t *testing.T) {
	h, err := read(t, whole)
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.Check(4)
	if want := (Account{Steps: 4, Void: 1, Generations: 2, Epochs: 2, Finished: 1}); err != nil || a != want {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	if lost := h.Lost(time.Unix(0, 15), time.Unix(0, 18)); lost != 1 {
		t.Errorf("%d steps lost, want step 3 of the first generation", lost)
	}
	if p := Longest(h.Steps(), time.Unix(0, 16), time.Unix(0, 30)); p.Length() != 25 {
		t.Errorf("the longest pause is %d long, want that from 17 to 42", p.Length())
	}
	if d := Durations(h.Steps(), time.Unix(0, 17), time.Unix(0, 42)); len(d) != 1 || d[0] != 25 {
		t.Errorf("durations of steps %v, want that from 17 to 42", d)
	}
}

// Wrong records must be detected.
func TestWrongRecords(t *testing.T) {
	for _, c := range []struct {
		name, file, old, new string
		missing, repeated    uint64
		message              string
	}{
		{"a sample twice", "b", "S 43 2 4 1 1", "S 43 2 4 1 1 0", 0, 1, ""},
		{"a sample never", "b", "S 43 2 4 1 1", "S 43 2 4 1", 0, 0, "ended at step 4 with 2 epochs"},
		{"a sample never, in an old epoch", "b", "S 11 1 1 0 0", "S 11 1 1 0", 1, 0, ""},
		{"one for another", "b", "S 11 1 1 0 0", "S 11 1 1 0 3", 1, 1, ""},
		{"no account of a step", "b", "S 13 1 2 0 2\n", "", 2, 0, "1 of 2 ranks"},
		{"another epoch", "b", "S 13 1 2 0 2", "S 13 1 2 1 2", 1, 0, "is in epoch"},
		{"a step left out", "b", "B 40 2 1 2 2", "B 40 2 1 2 3", 0, 0, "sees a world"},
		{"two of a rank", "b", "B 40 2 1 2 2", "B 40 2 0 2 2", 0, 0, "two workers of rank 0"},
		{"not a record", "a", "D 12 1 1", "D 12", 0, 0, "not a record"},
		{"two begin too late", "ab", "2 2\nS 41", "2 3\nS 41", 0, 0, "began at step 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{}
			for name, text := range whole {
				if strings.Contains(c.file, name) {
					if !strings.Contains(text, c.old) {
						t.Fatalf("%q is not in %s", c.old, name)
					}
					text = strings.Replace(text, c.old, c.new, 1)
				}
				files[name] = text
			}
			h, err := read(t, files)
			var a Account
			if err == nil {
				a, err = h.Check(4)
			}
			if c.message != "" && !strings.Contains(fmt.Sprint(err), c.message) || a.Missing != c.missing || a.Repeated != c.repeated {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
}
