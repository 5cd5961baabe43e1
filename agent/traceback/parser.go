// Package traceback finds the cause of a program's end in its output: the last traceback of Python
// with its causes, an exception group, a report of faulthandler, a panic of Go, an uncaught
// exception of C++. It reads line by line and keeps a bounded amount.
package traceback

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
)

// Parser parses the lines of one output stream. The zero value is ready.
type Parser struct {
	block  *block            // being parsed
	last   *tables.Exception // newest complete one
	at     time.Time         // when its first line was printed
	since  int               // lines after it
	link   bool              // the next traceback is a consequence of the last one
	origin bool              // the traceback being parsed is the cause of last, raised in another process
	more   bool              // its message continues in the next line
	group  bool              // within an exception group: lines have a margin
	nested bool              // the margin is deeper than that of a group which is not part of another
	parts  bool              // the group's own exception is complete, its parts follow
	abort  bool              // last is of C++: faulthandler reports the abort that follows from it

	// A destructor or a thread has failed, which does not end the program: survives = a traceback
	// on the next line is of it; survived = it was, and so is one that is chained to it.
	survives, survived bool
}

// block is an incomplete traceback.
type block struct {
	kind    kind
	begun   time.Time // when its first line was printed
	cause   string
	frame   frame // innermost one
	user    frame // innermost one of the user's own code
	frames  int
	others  int // lines in a row that do not belong to it
	typ     string
	message string
	call    string // Go: the function whose file is on the next line

	current bool // faulthandler: the frames are those of the thread that failed
}

type kind int

const (
	python kind = iota
	fault       // of faulthandler: the innermost frame is first
	golang
	cpp
)

type frame struct {
	file     string
	line     int
	function string
}

// mostOthers is how many other lines may interrupt a traceback before it is dropped.
const mostOthers = 50

var (
	rankMark = regexp.MustCompile(`^\[rank\d+\]: ?`) // torch's excepthook
	bar      = regexp.MustCompile(`\d%\||\dit \[`)   // of tqdm
	margin   = regexp.MustCompile(`^ +[|+] ?`)       // of an exception group, before its contents
)

// Line parses the next line of the stream; now is when it was printed.
func (p *Parser) Line(line string, now time.Time) {
	line = strings.TrimSuffix(line, "\r")
	if before, found := strings.CutSuffix(line, header); found && bar.MatchString(before) {
		line = header // a bar has no line feed when the exception comes
	}
	if strings.HasPrefix(line, "[rank") {
		line = rankMark.ReplaceAllString(line, "")
	}
	if p.group {
		m := margin.FindString(line)
		p.group, p.nested = m != "", strings.HasPrefix(m, "   ")
		line = line[len(m):]
		if p.group && strings.HasPrefix(line, "-") {
			return // between two parts
		}
	}
	text := strings.TrimSpace(line)
	if p.block != nil && p.block.kind == cpp && !strings.HasPrefix(text, "what():") {
		p.whole() // it has no message
	}
	switch {
	case p.begins(line, text):
		p.block.begun = now
	case p.block != nil:
		p.within(line, text)
	case strings.HasPrefix(line, "Exception ignored "), strings.HasPrefix(line, "Exception in thread "):
		p.survives = true
	case text == "":
	case p.survived && (text == directCause || text == whileHandling):
		p.survives = true
	default:
		p.survives, p.survived = false, false
		p.after(text)
	}
}

func (p *Parser) after(text string) {
	switch {
	case p.last == nil:
	case p.parts && p.group && p.last.Cause == "" && raised.MatchString(text): // a part without a traceback
		p.last.Cause = limits.Shorten(text, mostMessage)
	case text == directCause || text == whileHandling:
		p.link = true
	case p.more:
		p.last.Message = limits.Shorten(p.last.Message+" "+text, mostMessage)
		p.more = false
	default:
		p.since++
		p.link = false
	}
}

const (
	header        = "Traceback (most recent call last):"
	directCause   = "The above exception was the direct cause of the following exception:"
	whileHandling = "During handling of the above exception, another exception occurred:"
)

// begins reports whether a line is the first of a traceback.
func (p *Parser) begins(line, text string) bool {
	b := &block{}
	switch {
	case text == header, strings.HasPrefix(line, "  File ") && p.block == nil && isLocation(line):
	case text == "Original Traceback (most recent call last):" && p.last != nil:
		p.origin = true
	case strings.HasSuffix(text, "Exception Group Traceback (most recent call last):"):
		p.parts = p.parts && p.group && p.nested
		p.group = true
	case strings.HasPrefix(line, "Fatal Python error: "):
		b.kind, b.typ, b.message = fault, "Fatal Python error", strings.TrimPrefix(line, "Fatal Python error: ")
		if p.abort && p.since == 0 {
			b.cause = title(p.last)
		}
	case strings.HasPrefix(line, "panic: "), strings.HasPrefix(line, "fatal error: "):
		b.kind = golang
		b.typ, b.message, _ = strings.Cut(line, ": ")
	case strings.HasPrefix(line, "terminate called after throwing an instance of '"):
		b.kind, b.typ = cpp, strings.Trim(strings.TrimPrefix(line, "terminate called after throwing an instance of "), "'")
	default:
		return false
	}
	if p.link && p.last != nil && b.kind == python {
		b.cause = cmp.Or(p.last.Cause, title(p.last))
	}
	p.block, p.link, p.survived = b, false, false
	if b.kind == python && !strings.HasSuffix(text, ":") {
		b.python(line)
	}
	return true
}

func (p *Parser) within(line, text string) {
	b := p.block
	if b.others++; b.others > mostOthers {
		p.block, p.survives, p.origin = nil, false, false
		return
	}
	complete := true
	switch b.kind {
	case fault:
		complete = b.fault(line, text)
	case golang:
		complete = b.golang(line, text)
	case cpp:
		b.message = strings.TrimSpace(strings.TrimPrefix(text, "what():"))
	default:
		complete = b.python(line)
	}
	if complete {
		p.whole()
	}
}

func (p *Parser) whole() {
	b := p.block
	p.block = nil
	if p.survives {
		p.survives, p.survived = false, true
		return
	}
	f := b.user
	if f.file == "" {
		f = b.frame
	}
	x := &tables.Exception{
		Type: limits.Shorten(b.typ, mostName), Message: limits.Shorten(b.message, mostMessage), Cause: limits.Shorten(b.cause, mostMessage),
		File: limits.Shorten(f.file, mostMessage), Line: f.line, Function: limits.Shorten(f.function, mostName),
	}
	switch {
	case p.origin && p.last != nil: // x is the cause; the exception that wraps it ended the program
		outer := p.last
		outer.Cause = title(x)
		if b.user.file != "" {
			outer.File, outer.Line, outer.Function = x.File, x.Line, x.Function
		}
		p.origin = false
	case p.parts && p.group && p.last != nil: // of the parts the first counts
		p.last.Cause = cmp.Or(p.last.Cause, title(x))
	default:
		p.last, p.parts = x, p.group && strings.HasSuffix(x.Type, "ExceptionGroup")
	}
	p.at, p.since, p.abort = b.begun, 0, b.kind == cpp
	p.more = b.kind == python && strings.HasSuffix(b.message, ":")
}

// Last returns the newest exception and when its first line was printed: a program may be stopped
// before the rest of a traceback, but it failed before that. It returns nil if there is none, or if
// more than mostAfter lines came after it.
func (p *Parser) Last(mostAfter int) (*tables.Exception, time.Time) {
	if p.block != nil && p.block.kind != python { // the program ended inside it
		p.whole()
	}
	if p.last == nil || p.since > mostAfter {
		return nil, time.Time{}
	}
	x := *p.last
	x.Peer = ofPeer(x)
	return &x, p.at
}

// Parse returns the exception of a traceback, or nil.
func Parse(text string) *tables.Exception {
	var p Parser
	for line := range strings.Lines(text) {
		p.Line(strings.TrimSuffix(line, "\n"), time.Time{})
	}
	x, _ := p.Last(mostOthers)
	return x
}

// Limits on what is kept, in bytes.
const (
	mostName    = 128
	mostMessage = 512
)

func title(x *tables.Exception) string {
	if x.Message == "" {
		return x.Type
	}
	return x.Type + ": " + x.Message
}
