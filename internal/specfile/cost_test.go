package specfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/events/errcode"
)

// TestTextsThatAreDearAreRefused before they are parsed: each took the parser seconds. What a spec
// may have is read.
func TestTextsThatAreDearAreRefused(t *testing.T) {
	const size = 80_000
	for _, one := range []string{"? a\n", "a: 1\n", "]", "&a ", "---\na\n", "a: 1 # a\n", "<<: *a\n", "- a\n"} {
		text := strings.Repeat(one, size/len(one))
		if n := parts([]byte(text)); n <= maxParts {
			t.Errorf("%q has %d parts, it is parsed", one, n)
		}
		if _, err := Parse("job.yaml", []byte(text)); errcode.Of(err) != errcode.Invalid || !strings.Contains(err.Error(), "at most 10000 are allowed") {
			t.Errorf("%q: %v", one, err)
		}
	}
	var env strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&env, "  KEY_%d: value\n", i)
	}
	if _, err := Parse("job.yaml", []byte("version: v1\nname: x\ncommand: [a]\nworkers: {min: 1, max: 2}\nenv:\n"+env.String())); err != nil {
		t.Errorf("2,000 variables: %v", err)
	}
	var args []string
	for range 2 * maxParts {
		args = append(args, `"a"`)
	}
	if _, err := Parse("job.json", []byte(`{"version":"v1","name":"x","command":[`+strings.Join(args, ",")+`],"workers":{"min":1,"max":2},"wrong":1}`)); err == nil || !strings.Contains(err.Error(), "wrong: unknown field") {
		t.Errorf("a long JSON text: %.200v", err)
	}
}
