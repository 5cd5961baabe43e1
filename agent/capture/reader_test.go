package capture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/golden"
)

const secret = "s3cr3t-t0ken"

// program is a process whose output is read, in virtual time.
type program struct {
	reader
	now time.Time
}

func newProgram() *program {
	p := &program{now: time.Unix(1000, 0)}
	mask := NewMask(map[string]string{"A": secret})
	p.mask = func() *Mask { return mask }
	return p
}

// until moves the time, and returns what is due meanwhile.
func (p *program) until(at time.Time, returned func([]output.Line)) {
	for {
		due := p.Deadline()
		if due.IsZero() || due.After(at) {
			break
		}
		p.now = later(p.now, due)
		returned(p.Due(p.now))
	}
	p.now = later(p.now, at)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// TestScripts: "100ms "text"" prints a text at a time, "100ms" only lets it pass, "end" ends the
// output. The results are the lines with the time at which they are returned, ... those that are
// open.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, script string) string {
		p := newProgram()
		begin := p.now
		return golden.Blocks(script, func(command string) string {
			var b strings.Builder
			returned := func(all []output.Line) {
				for _, l := range all {
					mark := ""
					if l.Open {
						mark = " ..."
					}
					text := strconv.Quote(l.Text)
					if len(text) > 100 {
						text = fmt.Sprintf("%s... of %d bytes", text[:20], len(l.Text))
					}
					fmt.Fprintf(&b, "%8s %s%s\n", p.now.Sub(begin), text, mark)
				}
			}
			if command == "end" {
				returned(p.End())
				return b.String()
			}
			after, text, _ := strings.Cut(command, " ")
			at, err := time.ParseDuration(after)
			if err != nil {
				t.Fatal(err)
			}
			p.until(begin.Add(at), returned)
			text, times, repeated := strings.Cut(text, " x ")
			n := 1
			if repeated {
				if n, err = strconv.Atoi(times); err != nil {
					t.Fatal(err)
				}
			}
			if text != "" {
				if text, err = strconv.Unquote(text); err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				returned(p.Read([]byte(strings.Repeat(text, n)), p.now))
			}
			return b.String()
		})
	})
}

// TestHoweverOutputArrives: the finished lines are those of the whole output, each state of a line
// was one, at most four are returned a second, and no part of a secret is returned.
func TestHoweverOutputArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"\n", "\r", "\r\n", "a", "bar", "日本", " 10%", " 20%", "\x1b[32m", secret})
		words := rapid.SliceOfN(word, 0, 40).Draw(t, "words")
		text := strings.Join(words, "")
		p := newProgram()
		var finished []string
		var open []time.Time
		last := output.Line{}
		returned := func(all []output.Line) {
			for _, l := range all {
				if strings.Contains(l.Text, secret[:8]) {
					t.Fatalf("%q is returned", l.Text)
				}
				if last = l; l.Open {
					open = append(open, p.now)
				} else {
					finished = append(finished, l.Text)
				}
			}
		}
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "bytes")
			p.until(p.now.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "ms"))*time.Millisecond), returned)
			returned(p.Read([]byte(rest[:n]), p.now))
			rest = rest[n:]
		}
		returned(p.End())
		if want := shownBy(text); !slices.Equal(finished, want) {
			t.Fatalf("%q\n%q, want\n%q", text, finished, want)
		}
		if last.Open || p.End() != nil || !p.Deadline().IsZero() {
			t.Fatalf("%q ends with the open %q, due at %v", text, last.Text, p.Deadline())
		}
		for i := range open {
			if i > 0 && open[i].Sub(open[i-1]) < 250*time.Millisecond {
				t.Fatalf("states are returned at %v and %v", open[i-1], open[i])
			}
		}
	})
}

// shownBy returns the lines of a text in which the last state of each counts.
func shownBy(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		states := strings.FieldsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r == '\r' })
		switch {
		case len(states) > 0:
			all = append(all, strings.ReplaceAll(states[len(states)-1], secret, concealed))
		case strings.HasSuffix(line, "\n"):
			all = append(all, "")
		}
	}
	return all
}
