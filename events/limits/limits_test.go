package limits

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/internal/golden"
)

func TestLimitsPage(t *testing.T) { golden.Compare(t, "../../docs/limits.md", Markdown()) }

// TestShorten: the limit is kept, a short text is unchanged, characters stay whole, and shortening
// twice changes nothing.
func TestShorten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text") + strings.Repeat(rapid.SampledFrom([]string{"x", "é", "訓", "🎉"}).Draw(t, "filler"), rapid.IntRange(0, 2000).Draw(t, "times"))
		most := rapid.IntRange(0, 2000).Draw(t, "most")
		got := Shorten(s, most)
		if len(got) > most || len(s) <= most && got != s || strings.ToValidUTF8(got, "") != strings.ToValidUTF8(s, "") && strings.ToValidUTF8(s, "?") == s && strings.ToValidUTF8(got, "?") != got {
			t.Fatalf("%d bytes of %d: %q", len(got), most, got)
		}
		if again := Shorten(got, most); again != got {
			t.Fatalf("shortened again it is %q", again)
		}
		lines := rapid.SliceOf(rapid.Just(s)).Draw(t, "lines")
		short := ShortenLines(lines)
		if n := len(strings.Join(short, "\n")); n > Lines.Max {
			t.Fatalf("the lines have %d bytes", n)
		}
		if again := ShortenLines(short); !reflect.DeepEqual(again, short) {
			t.Fatalf("shortened again the lines are %q", again)
		}
	})
}
