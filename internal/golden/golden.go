// Package golden compares the output of a test with a reviewed file. A test that imports it accepts
// -rewrite: go test ./events -rewrite writes the present output; the diff shows what changed.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests print now into their files; read the diff before you commit it")

// Compare fails the test at the first line in which got differs from the file, whose name is
// relative to the folder of the test. With -rewrite it writes the file instead.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *rewrite {
		Update(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%v: go test with -rewrite writes it", err)
		return
	}
	if string(want) == got {
		return
	}
	w, g := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	n := 0
	for n < len(w) && n < len(g) && w[n] == g[n] {
		n++
	}
	t.Errorf("%s differs from line %d on\nwant %s\n got %s\nIf this is what it should say: go test with -rewrite, and read the diff.", file, n+1, line(w, n), line(g, n))
}

func line(all []string, n int) string {
	if n < len(all) {
		return all[n]
	}
	return "(the end)"
}

// Update is the writing half of Compare, for files that are not compared line by line: without
// -rewrite it does nothing.
func Update(t testing.TB, file, got string) {
	t.Helper()
	if !*rewrite {
		return
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		t.Fatal(err)
	}
}
