package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Scripts runs each testdata/*.txt as a subtest. A script consists of commands and their output;
// play returns the script with the present output, which must be equal.
func Scripts(t *testing.T, play func(t *testing.T, script string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			Compare(t, file, play(t, string(script)))
		})
	}
}

// Blocks runs a script of blocks separated by empty lines: commands, a line of four dashes, and the
// output of do for each command. Lines that begin with # are comments; a block without dashes has
// only comments.
func Blocks(script string, do func(command string) string) string {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		commands, _, dashes := strings.Cut(block+"\n", "----\n")
		out.WriteString(commands)
		if dashes {
			out.WriteString("----\n")
			for line := range strings.SplitSeq(strings.TrimSpace(commands), "\n") {
				if !strings.HasPrefix(line, "#") {
					out.WriteString(do(line))
				}
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}
