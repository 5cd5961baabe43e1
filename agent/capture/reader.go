package capture

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/output"
)

const (
	// MaxLine is the maximum number of bytes of a line; a longer one is split.
	MaxLine = 16 << 10
	// Between two states of an unfinished line, of which the newest counts, are minPause to
	// maxPause, and in between 1/pauseShare of its age: a bar of a day does not fill the store.
	minPause   = 250 * time.Millisecond
	maxPause   = 5 * time.Second
	pauseShare = 600
	// settle is how long a state that ends with a carriage return waits for a line feed.
	settle = 20 * time.Millisecond
)

// reader turns one output stream of a process into lines, as a terminal would show them. A carriage
// return begins the line anew: what the line was before is an open line, as the states of a
// progress bar, and what it is at its end a finished one. Text without a line feed is returned only
// if it has begun with a carriage return.
type reader struct {
	mask func() *Mask // conceals secrets

	rest  []byte    // after the last line feed or carriage return
	state string    // what the newest carriage return has ended; empty = nothing
	anew  bool      // the line was begun anew: it is open
	shown string    // the newest state that was returned; empty = none of this line
	begun time.Time // when the first state of this line was returned
	at    time.Time // when a state was returned last
	since time.Time // when the line became another than was returned; zero = it is not
}

// Read takes output and returns the lines of which it is the end, with the state of the line that
// is not finished if one is due.
func (r *reader) Read(data []byte, now time.Time) (all []output.Line) {
	r.rest = append(r.rest, data...)
	for {
		i := bytes.IndexAny(r.rest, "\r\n")
		if i < 0 {
			break
		}
		text, end := string(r.rest[:i]), r.rest[i]
		r.rest = r.rest[i+1:]
		switch {
		case end == '\n':
			all = r.finish(all, text)
		case text != "":
			r.state = r.mask().Text(text)
			fallthrough
		default:
			r.anew = true
		}
	}
	if m := r.mask().margin(); len(r.rest) > MaxLine+m {
		for r.rest = []byte(r.mask().Text(string(r.rest))); len(r.rest) > MaxLine+m; r.rest = r.rest[MaxLine:] {
			all = append(all, output.Line{Text: valid(string(r.rest[:MaxLine]))})
		}
		r.begin()
	}
	r.rest = slices.Clone(r.rest) // releases what was consumed
	if state := r.current(); state == "" || state == r.shown {
		r.since = time.Time{}
		return all
	}
	if r.since.IsZero() {
		r.since = now
	}
	return append(all, r.Due(now)...)
}

// End returns what is left at the end of the output, as finished lines.
func (r *reader) End() []output.Line {
	if len(r.rest) == 0 && r.state == "" {
		return nil
	}
	text := string(r.rest)
	r.rest = nil
	return r.finish(nil, text)
}

// Deadline returns when Due has something to return although nothing was read; zero = never.
func (r *reader) Deadline() time.Time {
	if r.since.IsZero() {
		return time.Time{}
	}
	at := r.at.Add(minPause)
	if r.shown != "" {
		at = r.at.Add(min(max(r.at.Sub(r.begun)/pauseShare, minPause), maxPause))
	}
	if settled := r.since.Add(settle); len(r.rest) == 0 && settled.After(at) {
		return settled
	}
	return at
}

// Due returns the state of the line that is not finished, once its time has come.
func (r *reader) Due(now time.Time) []output.Line {
	if at := r.Deadline(); at.IsZero() || now.Before(at) {
		return nil
	}
	if r.shown == "" {
		r.begun = now
	}
	r.shown, r.at, r.since = r.current(), now, time.Time{}
	return []output.Line{{Text: r.shown, Open: true}}
}

// current returns the state of the line that is not finished; empty = there is none to tell.
func (r *reader) current() string {
	if !r.anew {
		return ""
	}
	text := r.state
	if begun := r.mask().begun(string(r.rest)); begun != "" {
		text = begun
	}
	return valid(text[:min(len(text), MaxLine)])
}

// finish appends the line that ends with a text, which is its last state unless it is empty.
func (r *reader) finish(all []output.Line, text string) []output.Line {
	if text = r.mask().Text(text); text == "" {
		text = r.state
	}
	for ; len(text) > MaxLine; text = text[MaxLine:] {
		all = append(all, output.Line{Text: valid(text[:MaxLine])})
	}
	r.begin()
	return append(all, output.Line{Text: valid(text)})
}

// begin begins a line.
func (r *reader) begin() { r.state, r.shown, r.anew, r.since = "", "", false, time.Time{} }

// valid makes a text valid UTF-8: truncated or binary bytes must not break the fact that carries
// it.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
