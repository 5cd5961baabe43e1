package logs

import (
	"fmt"

	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/english"
)

// part is output of one stream that is stored together. An open line at its end is dropped with
// what follows. The zero value is an empty chunk.
type part struct {
	data  []byte
	lines int // finished ones of the worker
	gaps  int // lines counted by its marks
	open  bool
	at    int // with open, where the open line begins
}

// put appends a line.
func (c *part) put(l output.Line) {
	c.close()
	if c.open, c.at = l.Open, len(c.data); !l.Open {
		c.lines++
	}
	c.data = output.Append(c.data, l)
}

// gap appends a mark for so many missing lines.
func (c *part) gap(lines int) {
	c.close()
	c.gaps += lines
	c.data = fmt.Appendf(c.data, "regroup: %s dropped here, the log store was too slow\n", english.Plural(lines, "line"))
}

// join appends another chunk.
func (c *part) join(next part) {
	if len(next.data) == 0 {
		return
	}
	c.close()
	c.open, c.at = next.open, len(c.data)+next.at
	c.data = append(c.data, next.data...)
	c.lines, c.gaps = c.lines+next.lines, c.gaps+next.gaps
}

// passing reports whether the chunk has an open line alone, which is replaced soon.
func (c *part) passing() bool { return c.open && c.at == 0 }

func (c *part) close() {
	if c.open {
		c.data, c.open = c.data[:c.at], false
	}
}
