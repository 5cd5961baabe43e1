package nearest

import "testing"

func TestWord(t *testing.T) {
	known := []string{"status", "stop", "scale", "logs", "mnist-7f3a"}
	for typed, want := range map[string]string{
		"statsu": "status", "sop": "stop", "log": "logs", "mnist-7f3b": "mnist-7f3a", "zebra-crossing": "", "": "",
	} {
		if got := Word(typed, known); got != want {
			t.Errorf("Word(%q) = %q, want %q", typed, got, want)
		}
	}
	if got := Hint("lgos", known); got != `did you mean "logs"?` {
		t.Errorf("Hint = %q", got)
	}
}
