package escape

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events/output"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain",
		"训练 öffnen עברית नमस्ते 🎉 a\u3000b": "训练 öffnen עברית नमस्ते 🎉 a\u3000b",
		"family 👨\u200d👩":         "family 👨\u200d👩",
		"two\nlines\tand a tab":   "two\nlines\tand a tab",
		"\x1b[2J\x1b]0;title\x07": `\x1b[2J\x1b]0;title\a`,
		"csi \u009b31m":           `csi \u009b31m`,
		"back\b and return\r":     `back\b and return\r`,
		"del \x7f":                `del \x7f`,
		"turned \u202e around":    `turned \u202e around`,
		"tag \U000e0041":          `tag \U000e0041`,
		"torn \xff\xfe":           `torn \xff\xfe`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\x1b"); got != `a\nb\x1b` {
		t.Errorf("one line: %q", got)
	}
}

// TestJSONMeansTheSame checks that escaped JSON has no control characters and the same value.
func TestJSONMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text") + rapid.SampledFrom([]string{"", "\x1b[2J", "\u009b", "\U000e0041", "\u202e"}).Draw(t, "bad")
		b, err := json.Marshal(map[string]string{s: s})
		if err != nil {
			t.Fatal(err)
		}
		out := JSON(b)
		var back map[string]string
		if err := json.Unmarshal(out, &back); err != nil || back[s] != s {
			t.Fatalf("%q came back as %q, %v", s, back, err)
		}
		if strings.ContainsFunc(string(out), func(r rune) bool { return !shown(r) }) {
			t.Fatalf("%q gets through", out)
		}
	})
}

func TestAll(t *testing.T) {
	type inner struct {
		Text string
		List []string
	}
	v := struct {
		In    inner
		Ptr   *inner
		Any   any
		Map   map[string]inner
		Count int
		Bytes []byte
	}{
		inner{"\x1b", []string{"\x1b", "x"}}, &inner{Text: "\x1b"}, inner{Text: "\x1b"}, map[string]inner{"\x1b": {Text: "\x1b"}, "k": {}}, 7, []byte{0x1b},
	}
	All(&v)
	want := v
	want.In = inner{`\x1b`, []string{`\x1b`, "x"}}
	want.Ptr, want.Any = &inner{Text: `\x1b`}, inner{Text: `\x1b`}
	want.Map = map[string]inner{`\x1b`: {Text: `\x1b`}, "k": {}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v", v)
	}
}

// TestOutput: colours of a worker's output pass, and end with the line, or are removed; nothing
// else of it is obeyed.
func TestOutput(t *testing.T) {
	for in, want := range map[string][2]string{
		"plain":                       {"plain", "plain"},
		"\x1b[32mgreen\x1b[0m and":    {"\x1b[32mgreen\x1b[0m and", "green and"},
		"\x1b[1;31mto the end":        {"\x1b[1;31mto the end\x1b[0m", "to the end"},
		"\x1b[31ma\x1b[2Jb\x1b[m":     {"\x1b[31ma\\x1b[2Jb\x1b[m", `a\x1b[2Jb`},
		"\x1b[>4;2m \x1b]0;m\a\x1b[":  {`\x1b[>4;2m \x1b]0;m\a\x1b[`, `\x1b[>4;2m \x1b]0;m\a\x1b[`},
		"\u009b31m \xff\x1b[0m\u202e": {"\\u009b31m \\xff\x1b[0m\\u202e", `\u009b31m \xff\u202e`},
	} {
		if got := [2]string{Output(in, true), Output(in, false)}; got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestOutputIsSafe, of any text, and done twice it is the same.
func TestOutputIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.SampledFrom([]string{"\x1b", "\x1b[", "1;", "31m", "m", "\x1b[0m", "\x1b[2J", "\u009b", "\r", "\b", "\u202e", "\xff"}), rapid.String())
		s := strings.Join(rapid.SliceOf(part).Draw(t, "parts"), "")
		coloured, plain := Output(s, true), Output(s, false)
		if Output(coloured, true) != coloured || Output(coloured, false) != plain || Output(plain, true) != plain {
			t.Fatalf("%q becomes %q, then %q", s, coloured, Output(coloured, true))
		}
		if strings.ContainsFunc(plain, func(r rune) bool { return !shown(r) }) || Text(output.Plain(coloured)) != output.Plain(coloured) {
			t.Fatalf("%q becomes %q and %q", s, coloured, plain)
		}
	})
}

// TestShell: a word that a shell would change is quoted.
func TestShell(t *testing.T) {
	for want, words := range map[string][]string{
		"python train.py --lr=0.1":        {"python", "train.py", "--lr=0.1"},
		`sh -c 'echo it'\''s $RANK' '' é`: {"sh", "-c", "echo it's $RANK", "", "é"},
		`'two\nlines'`:                    {"two\nlines"},
	} {
		if got := Shell(words); got != want {
			t.Errorf("%q: %s, want %s", words, got, want)
		}
	}
}
