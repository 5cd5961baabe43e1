package main

import (
	"strings"
	"testing"
)

// TestVerdict: only a test that has passed in both places counts.
func TestVerdict(t *testing.T) {
	const good = `machine: begin top
=== RUN   TestA
--- PASS: TestA (0.01s)
    --- PASS: TestA/part (0.01s)
machine: end top, status 0
machine: begin delegated
--- PASS: TestA (0.01s)
machine: end delegated, status 0`
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"--- PASS: TestA (", "--- SKIP: TestA (", "top: SKIP TestA"},
		{"--- PASS: TestA/part", "--- FAIL: TestA/part", "top: FAIL TestA/part"},
		{"=== RUN   TestA", "    a_test.go:1: it is not proved", "top: a_test.go:1: it is not proved"},
		{"delegated, status 0", "delegated, status 1", "delegated: the tests end with 1"},
		{"\n--- PASS: TestA (", "\n(", "top: TestA has not passed"},
		{good[strings.Index(good, "machine: begin delegated"):], "", "delegated: TestA has not passed"},
	} {
		k := newCheck([]string{"TestA"})
		for line := range strings.Lines(strings.Replace(good, c.old, c.new, 1)) {
			k.read(strings.TrimSuffix(line, "\n"))
		}
		got := ""
		if err := k.verdict(); err != nil {
			got, _, _ = strings.Cut(err.Error(), "\n")
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
