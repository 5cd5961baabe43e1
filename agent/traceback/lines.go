package traceback

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/tables"
)

var (
	// Python: a frame has ", in name" (faulthandler: " in name"), the location of a syntax error
	// has none.
	framed = regexp.MustCompile(`^ +File "([^"]*)", line (\d+)(?:,? in (.+))?$`)
	// A class that is defined in a function has <locals> in its name.
	raised  = regexp.MustCompile(`^([A-Za-z_](?:[\w.]|<locals>)*)(?:: ?(.*))?$`)
	goPlace = regexp.MustCompile(`^\t(\S+\.(?:go|s)):(\d+)(?: |$)`)
)

// isLocation reports whether a line is the location of a syntax error: it has no function, and may
// appear without a header.
func isLocation(line string) bool {
	m := framed.FindStringSubmatch(line)
	return m != nil && m[3] == ""
}

// python parses a line of a traceback and reports whether it is the last one: the exception itself.
func (b *block) python(line string) bool {
	if b.takeFrame(line) {
		return false
	}
	if line == "" || line[0] == ' ' || line[0] == '\t' || b.frames == 0 {
		return false
	}
	m := raised.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	b.typ, b.message = m[1], m[2]
	return true
}

// takeFrame parses a line with a file and reports whether it was one.
func (b *block) takeFrame(line string) bool {
	m := framed.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	number, _ := strconv.Atoi(m[2]) // digits only; a number that is too long counts as none
	f := frame{m[1], number, m[3]}
	b.frames++
	b.others = 0
	if b.kind == fault && b.frames > 1 {
		if b.user.file == "" && isUsers(f.file) {
			b.user = f
		}
		return true
	}
	b.frame = f
	if isUsers(f.file) {
		b.user = f
	}
	return true
}

// fault parses a line of faulthandler's output and reports whether the frames of the thread that
// failed are complete.
func (b *block) fault(line, text string) bool {
	switch {
	case strings.HasPrefix(text, "Current thread "):
		b.current = true
	case b.current && !b.takeFrame(line):
		return b.frames > 0
	case !b.current:
		b.others = 0 // another thread's
	}
	return false
}

// golang parses a line of a panic and reports whether the frames of the first goroutine are
// complete.
func (b *block) golang(line, text string) bool {
	if m := goPlace.FindStringSubmatch(line); m != nil {
		number, _ := strconv.Atoi(m[2])
		f := frame{m[1], number, b.call}
		b.others = 0
		b.frames++
		if b.frame.file == "" {
			b.frame = f
		}
		if b.user.file == "" && !isGoLibrary(f) {
			b.user = f
		}
		return false
	}
	switch {
	case strings.HasPrefix(line, "\tpanic: "):
		b.cause, b.message = b.typ+": "+b.message, strings.TrimPrefix(text, "panic: ")
	case text == "":
		return b.frames > 0
	case line[0] != '\t':
		b.call = text
		if i := strings.LastIndexByte(text, '('); i > 0 {
			b.call = text[:i]
		}
	}
	return false
}

// isUsers reports whether a file belongs to the user: not to Python, nor installed with pip, nor to
// Regroup.
func isUsers(file string) bool {
	if strings.HasPrefix(file, "<frozen ") {
		return false
	}
	return !containsAny(file, "/site-packages/", "/dist-packages/", "/python/regroup/", "/lib/python3", "/lib64/python3")
}

func containsAny(s string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s, part) })
}

// isGoLibrary reports whether a frame is in the standard library, a module that was downloaded, or
// Regroup.
func isGoLibrary(f frame) bool {
	base := strings.LastIndexByte(f.function, '/') + 1
	name, _, _ := strings.Cut(f.function[base:], ".")
	pkg := f.function[:base] + name
	if name == "panic" || pkg == "runtime" || strings.Contains(f.file, "/pkg/mod/") {
		return true
	}
	for _, own := range []string{"elastic", "collective"} {
		if own = "github.com/regroup-io/regroup/" + own; pkg == own || strings.HasPrefix(pkg, own+"/") {
			return true
		}
	}
	return strings.HasSuffix(filepath.Dir(f.file), "/src/"+pkg) // of GOROOT
}

// Within makes the file of an exception relative to dir if it is inside dir; an empty dir stands
// for the working directory.
func Within(x *tables.Exception, dir string) {
	if !filepath.IsAbs(x.File) {
		return
	}
	if dir == "" {
		dir, _ = os.Getwd() // empty if it no longer exists: then no file is inside it
	}
	if rel, err := filepath.Rel(dir, x.File); err == nil && filepath.IsLocal(rel) {
		x.File = rel
	}
}

// lost are texts of libraries about a lost peer. A program that prints them did not fail by itself.
var lost = []string{
	"peer lost", "connection closed by peer", "connection reset by peer", "remote process exited", "socket closed", "broken pipe",
	"connection was closed", "communicator was aborted", "connection refused", "failed to recv", "store is closed",
}

// ofPeer reports whether an exception is about the loss of another worker.
func ofPeer(x tables.Exception) bool {
	name := x.Type[strings.LastIndexByte(x.Type, '.')+1:]
	switch name {
	case "HorovodInternalError", "WorkerLostError", "DistNetworkError":
		return true
	}
	if name != "RuntimeError" && !strings.HasPrefix(name, "Dist") && !strings.HasPrefix(name, "Connection") && name != "BrokenPipeError" &&
		name != "panic" && !strings.HasPrefix(x.Type, "gloo::") && !strings.HasPrefix(x.Type, "c10") {
		return false
	}
	return containsAny(strings.ToLower(x.Message), lost...)
}
