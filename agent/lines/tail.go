package lines

// tailBytes bounds a Tail: a traceback of a hundred frames and what was printed before it.
const tailBytes = 64 << 10

// Tail keeps the newest lines of a stream that cannot be stored now, so that the reason for a
// worker's end is not among those that are lost. The zero value is ready.
type Tail struct {
	Lost  int // lines that were before the kept ones
	Lines []string
	size  int
}

// Add appends a line and returns how many older ones were lost for it.
func (t *Tail) Add(line string) (lost int) {
	t.Lines = append(t.Lines, line)
	t.size += len(line) + 1
	for t.size > tailBytes && lost < len(t.Lines)-1 {
		t.size -= len(t.Lines[lost]) + 1
		lost++
	}
	clear(t.Lines[:lost]) // they may be long
	t.Lines = t.Lines[lost:]
	t.Lost += lost
	return lost
}
