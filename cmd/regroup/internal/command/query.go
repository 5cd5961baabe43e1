package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/theory/jsonpath"

	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/internal/escape"
)

// Forms with a text of their own: jsonpath=$.workers[*].rank, template={{.state}}.
const (
	JSONPath = "jsonpath"
	Template = "template"
)

// query writes what a text selects of a value, which is as decoded from JSON.
type query func(w io.Writer, v any) error

// parseQuery returns the query of a form, nil if the form is none. Errors have the position.
func parseQuery(form string) (query, error) {
	kind, text, _ := strings.Cut(form, "=")
	switch kind {
	case JSONPath:
		return parseJSONPath(text)
	case Template:
		return parseTemplate(text)
	}
	return nil, nil //nolint:nilnil // it is none
}

// parseJSONPath reads a path as RFC 9535 has it. Each selected value is a line: texts as they are,
// others as JSON.
func parseJSONPath(text string) (query, error) {
	if !strings.HasPrefix(text, "$") {
		return nil, fmt.Errorf("%s=%s: a path begins with $ (RFC 9535): write %s=$.state, or $[*].job of a list", JSONPath, text, JSONPath)
	}
	path, err := jsonpath.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %s", JSONPath, text, strings.TrimPrefix(err.Error(), "jsonpath: "))
	}
	return func(w io.Writer, v any) error {
		for selected := range path.Select(v).All() {
			line, ok := selected.(string)
			if !ok {
				b, err := json.Marshal(selected)
				if err != nil {
					return errcode.Errorf(errcode.Internal, "encode the output: %w", err)
				}
				line = string(b)
			}
			if _, err := fmt.Fprintln(w, escape.Line(line)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// parseTemplate reads a template of Go, which has beside Go's own functions json. What it writes
// ends with a new line.
func parseTemplate(text string) (query, error) {
	t, err := template.New(Template).Funcs(template.FuncMap{"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	}}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", Template+"="+text, place(err))
	}
	return func(w io.Writer, v any) error {
		var b bytes.Buffer
		if err := t.Execute(&b, v); err != nil {
			return errcode.Errorf(errcode.Invalid, "-o %s=%s: %s", Template, text, place(err))
		}
		out := b.String()
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		_, err := io.WriteString(w, escape.Text(out))
		return err
	}, nil
}

// place is an error of a template with its position: line 1, column 8: ...
func place(err error) string {
	rest, ok := strings.CutPrefix(err.Error(), "template: "+Template+":")
	if !ok {
		return err.Error()
	}
	var line, column int
	if n, _ := fmt.Sscanf(rest, "%d:%d:", &line, &column); n == 2 {
		_, rest, _ = strings.Cut(rest, ": ")
		return fmt.Sprintf("line %d, column %d: %s", line, column+1, rest)
	}
	number, rest, _ := strings.Cut(rest, ": ")
	return "line " + number + ": " + rest
}

// plain turns a value into what its JSON means: maps, lists, texts and numbers, whole ones as
// int64 where they fit.
func plain(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "encode the output: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		return nil, errcode.Errorf(errcode.Internal, "encode the output: %w", err)
	}
	return numbers(out), nil
}

func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64() // Go has encoded it
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
