// Package output defines the form in which the output of workers is stored and shown: lines, states
// of lines that are not finished, as those of progress bars, and colours.
package output

import (
	"iter"
	"strings"
)

// Line is one line of a worker's output, or with Open a state of a line that is not finished: the
// next one of the same worker and stream replaces it. The last of them is never open if the worker
// has ended, unless its agent was lost.
type Line struct {
	Text string
	Open bool
}

// Append appends a line to the data of a chunk, in which a finished line ends with a line feed and
// an open one with a carriage return:
//
//	loading\n 10%\r 20%\r done\n
func Append(data []byte, l Line) []byte {
	data = append(data, l.Text...)
	if l.Open {
		return append(data, '\r')
	}
	return append(data, '\n')
}

// Lines returns the lines of a chunk. Line ends of two characters, \r\n, are line feeds; what other
// programs have stored may lack the last one.
func Lines(data []byte) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for rest := string(data); rest != ""; {
			i := strings.IndexAny(rest, "\r\n")
			if i < 0 {
				yield(Line{Text: rest})
				return
			}
			l := Line{Text: rest[:i]}
			returns := len(rest[i:]) - len(strings.TrimLeft(rest[i:], "\r"))
			rest = rest[i+returns:]
			if after, ok := strings.CutPrefix(rest, "\n"); ok {
				rest = after
			} else if l.Open = true; l.Text == "" {
				continue // it replaces nothing
			}
			if !yield(l) {
				return
			}
		}
	}
}
