package screen

import (
	"regexp"
	"testing"
)

func TestHighlight(t *testing.T) {
	on, nan := Palette{On: true}, regexp.MustCompile("nan|inf")
	for line, want := range map[string]string{
		"loss nan, grad inf":         "loss \x1b[7mnan\x1b[0m, grad \x1b[7minf\x1b[0m",
		"loss 0.3":                   "loss 0.3",
		"\x1b[31mred\x1b[0m 0.3":     "\x1b[31mred\x1b[0m 0.3",
		"\x1b[31mn\x1b[0man is here": "\x1b[7mnan\x1b[0m is here", // its own colours would end in the middle
	} {
		if got := on.Highlight(nan, line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
	if got := (Palette{}).Highlight(nan, "nan"); got != "nan" {
		t.Errorf("without colours: %q", got)
	}
}
