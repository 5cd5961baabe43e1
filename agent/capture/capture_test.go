package capture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events/output"
)

// TestRestOfThePipeIsRead: a process has printed and ended before its reader runs; its last lines
// give the reason.
func TestRestOfThePipeIsRead(t *testing.T) {
	var got []string
	c, err := New(func(_ string, lines []output.Line) {
		for _, l := range lines {
			got = append(got, l.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	if _, err := c.out.w.WriteString(text.String() + "torn"); err != nil { // the write end stays open, as with a surviving child
		t.Fatal(err)
	}
	if err := c.out.r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	c.out.read()
	if len(got) != 5001 || got[4999] != "line 4999" || got[5000] != "torn" {
		t.Errorf("%d lines were read", len(got))
	}
}
