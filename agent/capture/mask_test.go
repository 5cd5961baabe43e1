package capture

import (
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/output"
)

// TestNoPartOfASecretRemains: wherever a long line is cut, and however the output arrives.
func TestNoPartOfASecretRemains(t *testing.T) {
	const value = "0123456789abcdef"
	hide := NewMask(map[string]string{"A": value, "B": "first of the lines\nlast of the lines"})
	for before := MaxLine - 2*len(value); before < MaxLine+2*len(value); before++ {
		for _, newline := range []string{"", "\n"} {
			for _, portion := range []int{1 << 20, 7000} {
				text := strings.Repeat("x", before) + value + strings.Repeat("y", 100) + newline
				r := reader{mask: func() *Mask { return hide }}
				var all []string
				returned := func(lines []output.Line) {
					for _, l := range lines {
						all = append(all, l.Text)
					}
				}
				for len(text) > 0 {
					n := min(portion, len(text))
					returned(r.Read([]byte(text[:n]), time.Time{}))
					text = text[n:]
				}
				returned(r.End())
				whole := strings.Join(all, "")
				if want := strings.Repeat("x", before) + concealed + strings.Repeat("y", 100); whole != want {
					t.Fatalf("%d bytes before it, %q, %d at a time: %q", before, newline, portion, strings.Trim(whole, "xy"))
				}
				for _, l := range all {
					if len(l) > MaxLine {
						t.Fatalf("a line of %d bytes", len(l))
					}
				}
			}
		}
	}
	for text, want := range map[string]string{
		"key 0123456789abcde": "key ", "key 0": "key ", "key 0123456789abcdef": "key ****", "key 0123456789abcdef0123": "key ****", "key first of the li": "key ", "key 12": "key 12", "": "",
	} {
		if got := hide.begun(text); got != want {
			t.Errorf("the beginning %q is returned as %q, want %q", text, got, want)
		}
	}
	if got := hide.Text("it begins with first of the lines"); got != "it begins with ****" {
		t.Errorf("a line of a value: %q", got)
	}
}
