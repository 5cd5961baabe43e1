package record

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTailCountsEachStepOnce(t *testing.T) {
	tail := Tail{Dir: t.TempDir()}
	file := filepath.Join(tail.Dir, "a.rec")
	for _, c := range []struct {
		text string
		want int
	}{{"B 1 1 0 2 0\nD 2 1 1\nD 3 1", 1}, {" 2\nD 4 1 3\n", 2}, {"", 0}} {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(c.text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := tail.Poll(); err != nil || got != c.want {
			t.Errorf("after %q: %d steps, %v, want %d", c.text, got, err, c.want)
		}
	}
}
