package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/regroup-io/regroup/cmd/regroup/internal/screen"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/escape"
)

// Output formats.
const (
	Table = "table"
	Wide  = "wide"
	JSON  = "json"
	YAML  = "yaml"
	Name  = "name"
	Text  = "text"
	Raw   = "raw"
	JSONL = "jsonl"

	SVG      = "svg"
	Perfetto = "perfetto"
	OTLP     = "otlp"
)

// word is the value of a flag that takes one of some words.
type word struct {
	what    string // for errors
	typ     string // for the help
	allowed []string
	value   string
}

// String implements pflag.Value.
func (w *word) String() string { return w.value }

// Type implements pflag.Value.
func (w *word) Type() string { return w.typ }

// Set implements pflag.Value.
func (w *word) Set(s string) error {
	if !slices.Contains(w.allowed, s) {
		return fmt.Errorf("unknown %s %q: %s", w.what, s, cmp.Or(spec.DidYouMean(s, w.allowed), "use one of "+strings.Join(w.allowed, ", ")))
	}
	w.value = s
	return nil
}

// Format is the value of -o.
type Format struct {
	word
	queries bool  // jsonpath= and template= are allowed
	query   query // of such a form
}

// Set implements pflag.Value.
func (f *Format) Set(s string) (err error) {
	f.query = nil
	if kind, _, given := strings.Cut(s, "="); f.queries && given && (kind == JSONPath || kind == Template) {
		if f.query, err = parseQuery(s); err == nil {
			f.value = s
		}
		return err
	}
	err = f.word.Set(s)
	if err != nil && f.queries && !strings.Contains(err.Error(), "did you mean") {
		err = fmt.Errorf("%w, %s=PATH, %s=TEXT", err, JSONPath, Template)
	}
	return err
}

// Reading is Output for a command that reads: where it has JSON it also has JSON lines, and what a
// JSONPath or a template selects.
func Reading(cmd *cobra.Command, allowed ...string) *Format {
	if !slices.Contains(allowed, JSONL) {
		allowed = append(allowed, JSONL)
	}
	f := Output(cmd, append(allowed, JSONPath+"=PATH", Template+"=TEXT")...)
	f.allowed, f.queries = allowed, true
	return f
}

// Output adds -o with the allowed formats, the first of which is the default.
func Output(cmd *cobra.Command, allowed ...string) *Format {
	f := &Format{word: word{what: "form", typ: "format", allowed: allowed, value: allowed[0]}}
	cmd.Flags().VarP(f, "output", "o", strings.Join(allowed, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // fails only when called twice
	return f
}

// Is reports whether a format was selected.
func (f *Format) Is(form string) bool { return f.value == form }

// Selects reports whether a JSONPath or a template says what is written.
func (f *Format) Selects() bool { return f.query != nil }

// Write writes a value in a form for programs; false for other formats.
func (f *Format) Write(w io.Writer, v any) (bool, error) {
	switch {
	case f.Selects():
		out, err := plain(v)
		if err == nil {
			err = f.query(w, out)
		}
		return true, err
	case f.Is(JSONL):
		return true, writeLines(w, v)
	case !f.Is(JSON) && !f.Is(YAML):
		return false, nil
	}
	var b bytes.Buffer
	err := WriteJSON(&b, v)
	out := b.Bytes()
	if err == nil && f.Is(YAML) {
		if out, err = toYAML(out); err != nil {
			err = errcode.Errorf(errcode.Internal, "encode the output: %w", err)
		}
	}
	if err == nil {
		_, err = w.Write(out)
	}
	return true, err
}

// Item is Write for one of many values, which have a line each in JSON too.
func (f *Format) Item(w io.Writer, v any) (bool, error) {
	if f.Is(JSON) {
		return true, writeLines(w, v)
	}
	return f.Write(w, v)
}

// writeLines writes each value of a list, or one that is no list, as JSON in a line.
func writeLines(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return errcode.Errorf(errcode.Internal, "encode the output: %w", err)
	}
	all := []json.RawMessage{b}
	if bytes.HasPrefix(b, []byte("[")) {
		if err := json.Unmarshal(b, &all); err != nil {
			return errcode.Errorf(errcode.Internal, "encode the output: %w", err)
		}
	}
	for _, one := range all {
		if _, err := w.Write(append(escape.JSON(one), '\n')); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a value as JSON, without characters that a terminal obeys.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return errcode.Errorf(errcode.Internal, "encode the output: %w", err)
	}
	_, err := w.Write(escape.JSON(b.Bytes()))
	return err
}

// List is Write for a list, which it writes as names too.
func List[T any](f *Format, w io.Writer, all []T, name func(T) string) (bool, error) {
	if !f.Is(Name) {
		return f.Write(w, all)
	}
	for _, x := range all {
		if _, err := fmt.Fprintln(w, name(x)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// Columns is how a list is shown as a table.
type Columns[T any] struct {
	Name   func(T) string // of a thing, for -o name; nil = there is no such form
	None   string         // what is said of an empty list; empty = the header is shown
	Header []string
	Row    func(screen.Palette, T) []string
}

// Print writes a list in the selected format, by default as a table, whose lines are cut at the
// width of a terminal.
func Print[T any](e Env, cmd *cobra.Command, f *Format, all []T, c Columns[T]) error {
	if written, err := List(f, e.Out, all, c.Name); written {
		return err
	}
	if len(all) == 0 && c.None != "" {
		fmt.Fprintln(e.Err, c.None)
		return nil
	}
	p := e.Palette(cmd, e.IsTerminal)
	var b strings.Builder
	if err := screen.TableOf(&b, p, c.Header, all, func(x T) []string { return c.Row(p, x) }); err != nil {
		return err
	}
	text := b.String()
	if e.IsTerminal && !f.Is(Wide) {
		text = screen.Fit(text, e.Width)
	}
	_, err := io.WriteString(e.Out, text)
	return err
}

// toYAML converts JSON to YAML. Strings with characters that the YAML encoder does not escape are
// quoted.
func toYAML(b []byte) ([]byte, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(b, &v, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	return yaml.Marshal(quote(v))
}

// quoted is a string that YAML writes in quotes, with escapes.
type quoted string

// MarshalYAML implements yaml.BytesMarshaler.
func (q quoted) MarshalYAML() ([]byte, error) { return []byte(strconv.Quote(string(q))), nil }

func quote(v any) any {
	switch v := v.(type) {
	case string:
		if escape.Text(v) != v {
			return quoted(v)
		}
	case []any:
		for i := range v {
			v[i] = quote(v[i])
		}
	case yaml.MapSlice:
		for i := range v {
			v[i].Value = quote(v[i].Value)
			if key, ok := v[i].Key.(string); ok { // keys cannot have a marshaler
				v[i].Key = escape.Text(key)
			}
		}
	}
	return v
}
