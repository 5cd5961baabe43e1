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
type Format struct{ word }

// Output adds -o with the allowed formats, the first of which is the default.
func Output(cmd *cobra.Command, allowed ...string) *Format {
	f := &Format{word{what: "form", typ: "format", allowed: allowed, value: allowed[0]}}
	cmd.Flags().VarP(f, "output", "o", strings.Join(allowed, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)) // fails only when called twice
	return f
}

// Is reports whether a format was selected.
func (f *Format) Is(form string) bool { return f.value == form }

// Write writes a value as JSON or YAML; false for other formats.
func (f *Format) Write(w io.Writer, v any) (bool, error) {
	if !f.Is(JSON) && !f.Is(YAML) {
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

// Print writes a list in the selected format, by default as a table.
func Print[T any](e Env, cmd *cobra.Command, f *Format, all []T, c Columns[T]) error {
	if written, err := List(f, e.Out, all, c.Name); written {
		return err
	}
	if len(all) == 0 && c.None != "" {
		fmt.Fprintln(e.Err, c.None)
		return nil
	}
	p := e.Palette(cmd, e.IsTerminal)
	return screen.TableOf(e.Out, p, c.Header, all, func(x T) []string { return c.Row(p, x) })
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
