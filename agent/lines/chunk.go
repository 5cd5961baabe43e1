package lines

import (
	"fmt"

	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/english"
)

// Chunk is output of one stream that is stored together. An open line at its end is gone with what
// follows. The zero value is an empty chunk.
type Chunk struct {
	Data  []byte
	Lines int // finished ones of the worker
	Gaps  int // lines counted by its marks
	open  bool
	at    int // with open, where the open line begins
}

// Put appends a line.
func (c *Chunk) Put(l output.Line) {
	c.close()
	if c.open, c.at = l.Open, len(c.Data); !l.Open {
		c.Lines++
	}
	c.Data = output.Append(c.Data, l)
}

// Gap appends a mark for so many missing lines.
func (c *Chunk) Gap(lines int) {
	c.close()
	c.Gaps += lines
	c.Data = fmt.Appendf(c.Data, "regroup: %s dropped here, the log store was too slow\n", english.Plural(lines, "line"))
}

// Join appends another chunk.
func (c *Chunk) Join(next Chunk) {
	if len(next.Data) == 0 {
		return
	}
	c.close()
	c.open, c.at = next.open, len(c.Data)+next.at
	c.Data = append(c.Data, next.Data...)
	c.Lines, c.Gaps = c.Lines+next.Lines, c.Gaps+next.Gaps
}

// Passing reports whether the chunk has an open line alone, which is replaced soon.
func (c *Chunk) Passing() bool { return c.open && c.at == 0 }

func (c *Chunk) close() {
	if c.open {
		c.Data, c.open = c.Data[:c.at], false
	}
}
