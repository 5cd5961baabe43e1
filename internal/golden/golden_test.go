package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failures is a testing.TB that records its errors.
type failures struct {
	testing.TB
	text string
}

func (f *failures) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }

func TestCompare(t *testing.T) {
	given := *rewrite
	defer func() { *rewrite = given }()
	*rewrite = false
	file := filepath.Join(t.TempDir(), "new", "file.txt")
	compare := func(got, want string) {
		t.Helper()
		f := &failures{TB: t}
		Compare(f, file, got)
		if (f.text == "") != (want == "") || !strings.Contains(f.text, want) {
			t.Errorf("%q: said %q, want %q", got, f.text, want)
		}
	}
	compare("a\n", "no such file")
	*rewrite = true
	compare("a\nb\n", "")
	*rewrite = false
	compare("a\nb\n", "")
	compare("a\nc\nd\n", "line 2 on\nwant b\n got c\n")
	compare("a\nb\nc\n", "line 3 on\nwant \n got c\n")
	compare("a", "line 2 on\nwant b\n got (the end)\n")
	compare("a\nb", "line 3 on\nwant \n got (the end)\n")
	Update(t, file, "not without the flag")
	if b, err := os.ReadFile(file); err != nil || string(b) != "a\nb\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestBlocks(t *testing.T) {
	Scripts(t, func(_ *testing.T, script string) string {
		n := 0
		return Blocks(script, func(command string) string {
			n++
			return fmt.Sprintf("%d %s\n", n, strings.ToUpper(command))
		})
	})
}
