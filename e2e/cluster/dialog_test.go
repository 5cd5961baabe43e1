package cluster

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// TestDialog talks to a program that greets, says what it hears, fails once, and ends.
func TestDialog(t *testing.T) {
	d, err := Talk(exec.CommandContext(t.Context(), "sh", "-c", `echo noise; echo addr a b; read x; echo "heard $x"; echo failed to stand; cat`))
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := d.Expect(t.Context(), "addr"); rest != "a b" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := d.Tell(1, "two"); err != nil {
		t.Error(err)
	}
	if line, err := d.Line(); line != "heard 1 two" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := d.Expect(t.Context(), "good"); err == nil || err.Error() != "to stand" {
		t.Errorf("a failure is %v", err)
	}
	if err := d.In.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Expect(t.Context(), "good"); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "good") {
		t.Errorf("the end is %v", err)
	}
	if err := d.Wait(); err != nil {
		t.Error(err)
	}
}
