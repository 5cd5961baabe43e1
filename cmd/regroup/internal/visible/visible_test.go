package visible

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
	Escape(&v)
	want := v
	want.In = inner{`\x1b`, []string{`\x1b`, "x"}}
	want.Ptr, want.Any = &inner{Text: `\x1b`}, inner{Text: `\x1b`}
	want.Map = map[string]inner{`\x1b`: {Text: `\x1b`}, "k": {}}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %+v", v)
	}
}
