package traceback

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestPrograms: the stderr of programs that failed, each recorded from a real one, and the parsed
// exception.
func TestPrograms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no recordings", err)
	}
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "# %s\n", strings.TrimSuffix(filepath.Base(f), ".txt"))
		x := Parse(string(text))
		if x == nil {
			b.WriteString("nothing\n\n")
			continue
		}
		whole, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s\n\n", x, whole)
	}
	golden.Compare(t, "testdata/understood.golden", b.String())
}

// TestLast: which of several exceptions counts, when it began, and how many lines may follow
// it.
func TestLast(t *testing.T) {
	var p Parser
	at := time.Unix(100, 0)
	say := func(text string) {
		for line := range strings.Lines(text) {
			at = at.Add(time.Second)
			p.Line(strings.TrimSuffix(line, "\n"), at)
		}
	}
	say("step 1\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nOSError: tried in vain\ngoing on\n")
	say("Traceback (most recent call last):\n")
	printed := at
	say("  File \"a.py\", line 2, in f\n    g()\nValueError: this is it\n")
	say("bye\nbye\n")
	x, when := p.Last(2)
	if x == nil || x.String() != "ValueError: this is it (a.py:2 in f)" || !when.Equal(printed) || x.Cause != "" {
		t.Errorf("%v at %v, want the ValueError without a cause at %v", x, when, printed)
	}
	if x, _ := p.Last(1); x != nil {
		t.Errorf("two lines after the end: %v", x)
	}
}

// TestBounds: a program may print any text of any length.
func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var p Parser
	p.Line("Traceback (most recent call last):", time.Time{})
	for range 100_000 {
		p.Line(`  File "/`+long[:64]+`.py", line 99999999999999999999, in f`, time.Time{})
	}
	p.Line(`  File "/`+long+`.py", line 1, in `+long, time.Time{})
	p.Line("Error"+long+": "+long, time.Time{})
	x, _ := p.Last(0)
	if x == nil || len(x.String()) > 4<<10 {
		t.Errorf("%d bytes are kept", len(fmt.Sprint(x)))
	}
	p = Parser{}
	p.Line("Traceback (most recent call last):", time.Time{})
	for range mostOthers + 1 {
		p.Line("other threads talk", time.Time{})
	}
	p.Line("ValueError: of whom?", time.Time{})
	if x, _ := p.Last(0); x != nil {
		t.Errorf("a traceback that never went on became %v", x)
	}
}

// FuzzLines: no text may panic the agent, or be kept whole.
func FuzzLines(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if x := Parse(text); x != nil && (len(x.Message) > mostMessage || len(x.Type) > mostName || len(x.Cause) > mostMessage+2) {
			t.Errorf("%+v", x)
		}
	})
}

// TestBehindABar: the last state of a bar and the first line of a traceback are one line.
func TestBehindABar(t *testing.T) {
	const frames = "Traceback (most recent call last):\n  File \"/w/a.py\", line 2, in f\n    x\nValueError: torn\n"
	for before, want := range map[string]bool{
		" 30%|###       | 3/10 [00:00<00:00, 9.31it/s]": true, "7it [00:01,  6.9it/s]": true, "epoch 1:   0%|          | 0/4 [00:00<?, ?it/s]": true,
		"it quotes ": false,
	} {
		if x := Parse(before + frames); (x != nil && x.Message == "torn") != want {
			t.Errorf("%q: %v", before, x)
		}
	}
}
