package output_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
)

// TestLines reads chunks, also those of agents that stored carriage returns as they came, and of
// other programs.
func TestLines(t *testing.T) {
	open := func(text string) output.Line { return output.Line{Text: text, Open: true} }
	line := func(text string) output.Line { return output.Line{Text: text} }
	for data, want := range map[string][]output.Line{
		"":                     nil,
		"a\nb\n":               {line("a"), line("b")},
		"a\r\n\r\nb":           {line("a"), line(""), line("b")},
		" 10%\r 20%\r":         {open(" 10%"), open(" 20%")},
		"\r 10%\r 20%\nnext\n": {open(" 10%"), line(" 20%"), line("next")},
		"a\r\rb\r\r\n":         {open("a"), line("b")},
		"\n\n":                 {line(""), line("")},
	} {
		if got := slices.Collect(output.Lines([]byte(data))); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", data, got, want)
		}
	}
}

// TestWhatIsAppendedIsRead, but open lines without a text, which replace nothing.
func TestWhatIsAppendedIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		var want []output.Line
		for range rapid.IntRange(0, 10).Draw(t, "lines") {
			l := output.Line{Text: rapid.StringMatching(`[a-z% ]{1,5}`).Draw(t, "text"), Open: rapid.Bool().Draw(t, "open")}
			want = append(want, l)
			data = output.Append(data, l)
		}
		if got := slices.Collect(output.Lines(data)); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", data, got, want)
		}
	})
}

// TestColours: only what sets colours and styles is one.
func TestColours(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[32mgreen\x1b[0m": "green", "\x1b[m": "", "\x1b[38;2;1;2;3;48:5:9mx": "x", "no": "no", "": "",
		"\x1b[2J": "\x1b[2J", "\x1b[>4;2m": "\x1b[>4;2m", "\x1b[?25m": "\x1b[?25m", "\x1b[31": "\x1b[31", "\x1b": "\x1b", "\x1b[\x1b[1mx": "\x1b[x",
		"\x1b[" + strings.Repeat("1", 65) + "m": "\x1b[" + strings.Repeat("1", 65) + "m", "\x1b]0;m\a": "\x1b]0;m\a", "\u009b31m": "\u009b31m",
	} {
		if got := output.Plain(text); got != want {
			t.Errorf("%q without colours is %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{"\x1b[m": true, "\x1b[0m": true, "\x1b[00m": true, "\x1b[0;0m": false, "\x1b[10m": false, "\x1b[39m": false} {
		if n, resets := output.Colour(text); n != len(text) || resets != want {
			t.Errorf("%q has %d bytes and ends colours: %t", text, n, resets)
		}
	}
}

// TestUnfinished: of each source the newest open line is left.
func TestUnfinished(t *testing.T) {
	a, b := output.Source{Place: ident.Place{Node: "a"}, Stream: "stderr"}, output.Source{Place: ident.Place{Node: "a"}, Stream: "stdout"}
	var u output.Unfinished[string]
	u.Take(a, true, "a 10%")
	u.Take(b, true, "b 10%")
	u.Take(a, true, "a 20%")
	u.Take(b, false, "b 100%")
	if got := u.All(); !slices.Equal(got, []string{"a 20%"}) {
		t.Errorf("%q", got)
	}
}

// TestPace lets one state of a line through every 30 s.
func TestPace(t *testing.T) {
	var p output.Pace
	var of output.Source
	begin := time.Unix(1000, 0)
	var took []int
	for i := range 100 {
		if p.Takes(of, true, begin.Add(time.Duration(i)*time.Second)) {
			took = append(took, i)
		}
	}
	if !slices.Equal(took, []int{30, 60, 90}) || !p.Takes(of, false, begin) || p.Takes(of, true, begin.Add(time.Hour)) {
		t.Errorf("it takes %v", took)
	}
}
