package spec

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"max", "min", "status", "stop", "scale", "logs", "mnist-7f3a", "release", "reliability", "reliabilities"}
	for word, want := range map[string]string{
		"mx": "max", "maxx": "max", "max": "max", "statsu": "status", "sop": "stop", "log": "logs", "mnist-7f3b": "mnist-7f3a",
		"reliab": "reliability", "rel": "release", "mni": "mnist-7f3a", "st": "",
		"quite-else": "", "zebra-crossing": "", "": "", strings.Repeat("x", 81): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
		hint := ""
		if want != "" {
			hint = `did you mean "` + want + `"?`
		}
		if got := DidYouMean(word, known); got != hint {
			t.Errorf("DidYouMean(%q) = %q, want %q", word, got, hint)
		}
	}
	if d := distance("kitten", "sitting"); d != 3 {
		t.Errorf("distance is %d, want 3", d)
	}
}
