package logs

// tailBytes bounds a tail: a traceback of a hundred frames and what was printed before it.
const tailBytes = 64 << 10

// tail keeps the newest lines of a stream that cannot be stored now, so that the reason for a
// worker's end is not among those that are lost. The zero value is ready.
type tail struct {
	lost  int // lines that were before the kept ones
	lines []string
	size  int
}

// add appends a line and returns how many older ones were lost for it.
func (t *tail) add(line string) (lost int) {
	t.lines = append(t.lines, line)
	t.size += len(line) + 1
	for t.size > tailBytes && lost < len(t.lines)-1 {
		t.size -= len(t.lines[lost]) + 1
		lost++
	}
	clear(t.lines[:lost]) // they may be long
	t.lines = t.lines[lost:]
	t.lost += lost
	return lost
}
