package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSectionsKeepEachOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	for _, s := range [][2]string{{"One", "a"}, {"Two", "b\n"}, {"Three", "c"}, {"Two", "new"}, {"One", "first"}, {"Three", "last"}} {
		if err := Section(file, "# Head\n\nAbout.\n", s[0], s[1]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Head\n\nAbout.\n\n## One\n\nfirst\n\n## Two\n\nnew\n\n## Three\n\nlast\n"
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

func TestQuantile(t *testing.T) {
	d := []time.Duration{5, 1, 4, 2, 3}
	if Quantile(d, 0.5) != 3 || Quantile(d, 1) != 5 || Quantile(d, 0) != 1 || Quantile(nil, 0.5) != 0 {
		t.Error(Quantile(d, 0.5), Quantile(d, 1), Quantile(d, 0))
	}
}
