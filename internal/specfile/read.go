// Package specfile reads a job specification from a YAML or JSON file and reports all errors at
// once: line, column, the source with a marker, and a suggestion. The events/spec package decides
// what is valid; this package locates each field in the file.
package specfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/english"
)

// maxFile bounds a spec; the command that carries it is bounded by limits.Command.
const maxFile = 1 << 20

// maxNested bounds the depth of brackets and dashes, those in strings included: the parser's time
// is quadratic in the depth.
const maxNested = 512

// maxParts bounds the lines, keys, items, brackets and marks of a file that is not JSON, those in
// strings included: the parser's time is quadratic in their number for some of them.
const maxParts = 10_000

// maxFound bounds the errors of such a JSON text that are reported.
const maxFound = 100

// parts returns that number.
func parts(text []byte) (n int) {
	for _, c := range text {
		switch c {
		case '\n', ',', '[', ']', '{', '}', '&', '*', '?', '!', '#', '|', '>', '%':
			n++
		}
	}
	return n + bytes.Count(text, []byte(": ")) + bytes.Count(text, []byte("- "))
}

// nested returns that depth.
func nested(text []byte) (deepest int) {
	depth := 0
	for line := range bytes.Lines(text) {
		dashes := 0
		for bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("- ")) || bytes.HasPrefix(bytes.TrimLeft(line, " "), []byte("? ")) {
			line = bytes.TrimLeft(line, " ")[2:]
			dashes++
		}
		deepest = max(deepest, dashes)
		for _, c := range line {
			switch c {
			case '[', '{':
				depth++
				deepest = max(deepest, depth)
			case ']', '}':
				depth = max(0, depth-1)
			}
		}
	}
	return deepest
}

// Read reads the spec in a file; "-" is stdin. The error for an invalid spec is an *Error.
func Read(name string, stdin io.Reader) (spec.Job, error) {
	in, shown := stdin, "<stdin>"
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return spec.Job{}, errcode.Errorf(errcode.Invalid, "read the job spec: %w", err)
		}
		defer f.Close()
		in, shown = f, filepath.Base(name)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return spec.Job{}, errcode.Errorf(errcode.Invalid, "read the job spec %s: %w", shown, err)
	}
	if len(data) > maxFile {
		return spec.Job{}, errcode.Errorf(errcode.TooLarge, "%s is over %d bytes: that is no job spec", shown, maxFile)
	}
	return Parse(shown, data)
}

// Parse reads a spec from the text of a file with this name.
func Parse(name string, text []byte) (spec.Job, error) {
	refuse := func(fs ...spec.FieldError) (spec.Job, error) {
		return spec.Job{}, &Error{File: name, Source: string(text), Findings: fs}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return refuse(spec.FieldError{Message: "the file is empty: give at least name, command and workers"})
	}
	isJSON := bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text)
	source := text
	if isJSON {
		// JSON may be indented with tabs, YAML may not; JSON strings cannot contain them.
		source = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	if n := nested(source); n > maxNested {
		return refuse(spec.FieldError{Message: fmt.Sprintf("opens %d lists and objects inside each other, at most %d are allowed: that is no job spec", n, maxNested)})
	}
	n := parts(source)
	if n > maxParts && isJSON { // without the places of errors, which only the other parser knows
		job, bad := spec.Parse(text)
		if len(bad) == 0 {
			return job, nil
		}
		return refuse(bad[:min(len(bad), maxFound)]...)
	}
	if n > maxParts {
		return refuse(spec.FieldError{Message: fmt.Sprintf("has %d lines, keys and items, at most %d are allowed in YAML: give a script in a file of its own, or write the spec in JSON", n, maxParts)})
	}
	file, err := parser.ParseBytes(source, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return refuse(syntax(err))
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) == 0 {
		return refuse(spec.FieldError{Message: "holds only comments: give at least name, command and workers"})
	}
	if len(docs) > 1 {
		f := spec.FieldError{Message: "holds more than one document: give each job a file of its own"}
		at := position(docs[1].Body)
		f.Line, f.Column = at.line, at.column
		return refuse(f)
	}
	w := &walker{fields: map[string]field{}, anchors: map[string]ast.Node{}}
	ast.Walk(w, docs[0].Body)
	raw := w.node("", docs[0].Body)
	if w.nodes > maxNodes {
		return refuse(spec.FieldError{Message: "unfolds into too many nodes: that is no job spec"})
	}
	if isJSON {
		raw = text
	}
	job, bad := spec.Parse(raw)
	found := w.bad
	for _, b := range bad {
		if _, given := w.fields[b.Path]; !given && mistyped(b.Path, bad) {
			continue // the other finding explains why it is missing
		}
		found = append(found, w.locate(b))
	}
	if len(found) == 0 {
		return job, nil
	}
	slices.SortStableFunc(found, func(a, b spec.FieldError) int {
		return cmp.Or(cmp.Compare(line(a), line(b)), cmp.Compare(a.Column, b.Column))
	})
	return refuse(found...)
}

// mistyped reports whether an unknown field is probably a misspelling of path.
func mistyped(path string, bad []spec.FieldError) bool {
	dot := strings.LastIndexByte(path, '.') + 1
	return slices.ContainsFunc(bad, func(f spec.FieldError) bool {
		return f.Message == "unknown field" && strings.LastIndexByte(f.Path, '.')+1 == dot && f.Path[:dot] == path[:dot] &&
			strings.Contains(f.Hint, strconv.Quote(path[dot:]))
	})
}

// line sorts findings without a position after the others.
func line(f spec.FieldError) int {
	if f.Line == 0 {
		return 1 << 30
	}
	return f.Line
}

func syntax(err error) spec.FieldError {
	f := spec.FieldError{Message: err.Error()}
	if se, ok := errors.AsType[yaml.Error](err); ok {
		f.Message = se.GetMessage()
		if t := se.GetToken(); t != nil && t.Position != nil {
			f.Line, f.Column = t.Position.Line, t.Position.Column
		}
	}
	f.Message = "not YAML: " + f.Message
	return f
}

// Error is the error for an invalid file. Its code is errcode.Invalid.
type Error struct {
	File     string
	Source   string
	Findings []spec.FieldError // with their places in the file
}

// Error returns the findings without the source, one per line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		lines = append(lines, e.head(f))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the findings as those of any other input.
func (e *Error) Unwrap() error { return errcode.Refuse(e.Findings) }

// Print writes each finding with the surrounding source, then their number.
func (e *Error) Print(w io.Writer) {
	lines := strings.Split(e.Source, "\n")
	for _, f := range e.Findings {
		fmt.Fprintln(w, e.head(f))
		if f.Line < 1 || f.Line > len(lines) {
			continue
		}
		if f.Line > 1 {
			fmt.Fprintf(w, "  %3d | %s\n", f.Line-1, lines[f.Line-2])
		}
		fmt.Fprintf(w, "> %3d | %s\n", f.Line, lines[f.Line-1])
		fmt.Fprintf(w, "        %s^\n", blank(lines[f.Line-1], f.Column-1))
	}
	fmt.Fprintln(w, english.Plural(len(e.Findings), "finding"))
}

// blank is as wide as the first n characters of a line, tabs kept.
func blank(line string, n int) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string([]rune(line)[:max(0, min(n, len([]rune(line))))]))
}

// head is the finding in one line: job.yaml:4:3  workers.mx: unknown field; did you mean "max"?
func (e *Error) head(f spec.FieldError) string {
	s := e.File
	if f.Line > 0 {
		s += fmt.Sprintf(":%d:%d", f.Line, f.Column)
	}
	s += "  "
	if f.Path != "" {
		s += f.Path + ": "
	}
	s += f.Message
	if f.Hint != "" {
		s += "; " + f.Hint
	}
	return s
}
